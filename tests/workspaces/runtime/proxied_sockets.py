"""WebSockets of a holder's client, and servers for them on this host's loopback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import serve
from websockets.utils import accept_key

from config.asgi import application
from tests.workspaces.runtime.proxied import Serve, until


class Socket:
    """A client's socket through ASGI."""

    def __init__(self, path: str, *headers: tuple[str, str], subprotocols: tuple[str, ...] = ()) -> None:
        path, _, query = path.partition("?")
        self.scope: dict[str, Any] = {
            "type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "ws",
            "path": f"/r{path}", "raw_path": f"/r{path}".encode(), "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (("Host", "testserver"), *headers)],
            "server": ("testserver", 80), "subprotocols": list(subprotocols),
        }  # fmt: skip
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._events.put_nowait({"type": "websocket.connect"})
        self.sent: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.running = asyncio.ensure_future(application(self.scope, self._events.get, self._send))

    async def _send(self, event: dict[str, Any]) -> None:
        await self.takes.wait()
        self.sent.append(event)

    def say(self, **message: Any) -> None:
        self._events.put_nowait({"type": "websocket.receive", **message})

    def leave(self, code: int, reason: str = "") -> None:
        self._events.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})

    async def event(self, kind: str) -> dict[str, Any]:
        """The next event, which must be of this type."""
        await until(lambda: bool(self.sent) or self.running.done())
        found = self.sent.pop(0)
        assert found["type"] == f"websocket.{kind}", found
        return found


@asynccontextmanager
async def websockets(handler: Any, **options: Any) -> AsyncIterator[int]:
    async with serve(handler, "127.0.0.1", 0, **options) as made:
        yield next(iter(made.sockets)).getsockname()[1]


def acceptance(head: bytes) -> bytes:
    """The answer to this handshake of a client."""
    key = re.search(rb"sec-websocket-key: (\S+)", head, re.IGNORECASE)
    assert key is not None
    lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")
    return "\r\n".join((*lines, f"Sec-WebSocket-Accept: {accept_key(key[1].decode())}", "", "")).encode()


def accepting(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> Serve:
    """Accept each socket, and then say what bytes `talk` likes."""

    async def serve_raw(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(acceptance(head))
        await talk(reader, writer)

    return serve_raw
