"""Requests to upload addresses as a server makes them, in this process: bodies by pieces, clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cdn.storage import part_path
from common import async_threads
from config.asgi import application

PART = "application/offset+octet-stream"


@dataclass
class Answer:
    """What came back. A status of 0: nothing did. `read`: how many pieces of the body were asked for."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    read: int = 0

    def json(self) -> Any:
        return json.loads(self.body)


class Upload:
    """One request. `leaves`: the client closes the connection in place of the body's end; a piece that is an event is
    waited for.
    """

    def __init__(
        self,
        method: str,
        token: str,
        pieces: Sequence[bytes | asyncio.Event] = (),
        *,
        leaves: bool = False,
        length: int | None = None,
        path: str = "",
        **headers: str,
    ) -> None:
        path = path or f"/cdn/uploads/{token}"
        self.answer = Answer()
        self._pieces = list(pieces)
        self._leaves = leaves
        sent = {"Host": "testserver", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if length is not None:
            sent["Content-Length"] = str(length)
        self._scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "server": ("testserver", 80),
        }  # fmt: skip

    async def run(self) -> Answer:
        await application(self._scope, self._receive, self._send)
        # What goes on without its client.
        await asyncio.gather(*async_threads._running, return_exceptions=True)
        return self.answer

    async def _receive(self) -> dict[str, Any]:
        self.answer.read += 1
        while self._pieces and isinstance(self._pieces[0], asyncio.Event):
            await self._pieces[0].wait()
            self._pieces.pop(0)
        if self._pieces:
            more = len(self._pieces) > 1 or self._leaves
            return {"type": "http.request", "body": self._pieces.pop(0), "more_body": more}
        if self._leaves:
            return {"type": "http.disconnect"}
        if self.answer.read == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: dict[str, Any]) -> None:
        self.answer.status = message.get("status", self.answer.status)
        self.answer.headers |= {name.decode().lower(): value.decode() for name, value in message.get("headers", [])}
        self.answer.body += message.get("body", b"")


def sent(method: str, token: str, *pieces: bytes, **options: Any) -> Answer:
    """A request from its beginning to its end."""
    return asyncio.run(Upload(method, token, pieces, **options).run())


def part_sent(token: str, offset: int, *pieces: bytes, **options: Any) -> Answer:
    """A part, as tus clients send it."""
    headers = {"Upload_Offset": str(offset), "Content_Type": PART, "Tus_Resumable": "1.0.0", **options}
    return sent("PATCH", token, *pieces, **headers)


def offset_of(token: str) -> int | None:
    """What a client is shown; None where the address is not known (any more)."""
    answer = sent("HEAD", token, Tus_Resumable="1.0.0")
    assert answer.body == b"" or answer.status == 404
    return int(answer.headers["upload-offset"]) if answer.status == 200 else None


def stored_part(file_id: str) -> bytes | None:
    """What is in the part file."""
    path = part_path(file_id)
    return path.read_bytes() if path.exists() else None


async def until(condition: Any, seconds: float = 120.0) -> None:
    """Wait for what another task or thread does."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")
