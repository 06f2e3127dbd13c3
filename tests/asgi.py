"""One request to the ASGI application as a server makes it, in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from config.asgi import application


class Request:
    """A request until `leave`, which is the client's disconnect; `run` serves it. `body` and `status` as received.

    `data` is sent as JSON, bytes as they are.
    """

    def __init__(self, path: str, headers: dict[str, str], method: str = "GET", data: Any = None) -> None:
        is_raw = isinstance(data, bytes)
        self._data = data if is_raw else b"" if data is None else json.dumps(data).encode()
        kind = "application/octet-stream" if is_raw else "application/json"
        length = {"Content-Type": kind, "Content-Length": str(len(self._data))} if self._data or is_raw else {}
        path, _, query = path.partition("?")
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {"Host": "testserver", **headers, **length}.items()
            ],
            "server": ("testserver", 80),
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self._begun = False
        self._gone = asyncio.Event()

    async def run(self) -> None:
        await application(self.scope, self._receive, self._send)

    def json(self) -> Any:
        return json.loads(self.body)

    def leave(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": self._data, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.headers |= {name.decode(): value.decode() for name, value in message.get("headers", [])}
        self.body += message.get("body", b"")
