"""Servers on the loopback for tests of the proxy, and calls of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from config.asgi import application
from tests.workspaces.runtime.conftest import Holder

Serve = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server whose `serve` gets the head of each request; its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(await reader.readuntil(b"\r\n\r\n"), reader, writer)
            await writer.drain()
        writer.close()

    made = await asyncio.start_server(handle, host, 0)
    try:
        yield made.sockets[0].getsockname()[1]
    finally:
        made.close()


def answering(answer: bytes, heads: list[bytes] | None = None) -> Serve:
    """Serve these bytes, and keep the heads."""

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if heads is not None:
            heads.append(head)
        writer.write(answer)

    return serve


def ok(body: bytes = b"hello", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Call:
    """A request through ASGI until `leave`, which is the client's disconnect."""

    def __init__(
        self, holder: Holder, path: str, *headers: tuple[str, str], method: str = "GET", pieces: Any = (b"",)
    ) -> None:
        path, _, query = path.partition("?")
        sent = [("Host", "testserver"), ("Authorization", f"Bearer {holder.token}"), *headers]
        self.scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": f"/r{path}", "raw_path": f"/r{path}".encode(), "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent],
            "server": ("testserver", 80),
        }  # fmt: skip
        self._pieces = iter(pieces)
        self._piece = next(self._pieces)
        self._gone = asyncio.Event()
        self._is_read = False
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.size = 0
        self.is_complete = False
        self.keeps = True
        self.takes = asyncio.Event()
        self.takes.set()

    def header(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each.lower() == name.lower()]

    async def run(self) -> Call:
        with suppress(asyncio.CancelledError):
            await application(self.scope, self._receive, self._send)
        return self

    def leave(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._is_read:
            await self._gone.wait()
        if self._gone.is_set():
            return {"type": "http.disconnect"}
        piece, self._piece = self._piece, next(self._pieces, None)
        self._is_read = self._piece is None
        if isinstance(piece, asyncio.Event):
            await piece.wait()
            piece = b""
        return {"type": "http.request", "body": piece, "more_body": not self._is_read}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.takes.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            return
        self.size += len(message.get("body", b""))
        if self.keeps:
            self.body += message.get("body", b"")
        self.is_complete = not message.get("more_body", False)


async def called(holder: Holder, path: str, *headers: tuple[str, str], **options: Any) -> Call:
    return await Call(holder, path, *headers, **options).run()


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it has not happened")


def run(work: Awaitable[None], seconds: float = 90) -> None:
    asyncio.run(asyncio.wait_for(work, seconds))
