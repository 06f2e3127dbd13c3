"""The HTTP parser of streams: what one body has come in is parsed some pieces at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from config.request_protocol import PIECES_AT_ONCE, RequestProtocol

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


def answers(path: Path, sent: bytes, count: int) -> tuple[list[list[int]], bytes]:
    """The sizes of the pieces that an application receives of each request's body, and what the client gets back."""
    bodies: list[list[int]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        more, pieces = True, []
        while more:
            message = await receive()
            pieces.append(len(message.get("body", b"")))
            more = message.get("more_body", False)
        bodies.append(pieces)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def exchange() -> bytes:
        config = uvicorn.Config(application, log_config=None, lifespan="off")
        config.load()
        loop, state = asyncio.get_running_loop(), ServerState()
        server = await loop.create_unix_server(lambda: RequestProtocol(config, state, {}), str(path))
        async with server:
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(sent)
            got = b""
            async with asyncio.timeout(120):
                while got.count(b"200 OK") < count:
                    got += await reader.read(65536)
            writer.close()
        return got

    return bodies, asyncio.run(exchange())


def test_a_body_in_chunks_of_one_byte_takes_many_turns_of_the_loop(tmp_path: Path) -> None:
    chunks = 100_000
    sent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n"
    [pieces], _ = answers(tmp_path / "s", sent, 1)
    assert sum(pieces) == chunks
    assert max(pieces) <= 4 * PIECES_AT_ONCE


def test_requests_behind_such_a_body_are_answered(tmp_path: Path) -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * PIECES_AT_ONCE * 2 + b"0\r\n\r\n"
    plain = HEAD + b"Content-Length: 300000\r\n\r\n" + b"y" * 300_000
    bodies, _ = answers(tmp_path / "s", (chunked + plain) * 3, 6)
    assert [sum(pieces) for pieces in bodies] == [PIECES_AT_ONCE * 2, 300_000] * 3
