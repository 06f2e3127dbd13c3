"""Serves an ASGI application that sends every message back, as streams is served: for tests of the protocol itself."""

from __future__ import annotations

import sys
from typing import Any

from config import serve_asgi, socket_protocol

# The largest message of the conformance cases.
serve_asgi.MAX_MESSAGE = 16 << 20
# Some of which come in fragments of 64 bytes.
socket_protocol.SMALL_FRAGMENTS = 1 << 20


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


if __name__ == "__main__":
    serve_asgi.streams_server(["tests.sandboxes.sockets.echo_server:application", "--fd", sys.argv[1]]).run()
