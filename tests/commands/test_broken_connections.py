"""Connections on which something goes wrong, in the real server of streams: they end, and so does the server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from common.server_stop import cancelled_at_stop
from config.request_protocol import PIECES_AT_ONCE, RequestProtocol, SlicedConnection
from config.serve_asgi import StreamsServer
from config.socket_protocol import FRAMES_AT_ONCE, FrameCount, SocketProtocol

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\nx\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n"
)
CLOSE_FRAME, PING_FRAME = b"\x88\x80\0\0\0\0", b"\x89\x80\0\0\0\0"
UNREAD = b"y" * (4 << 20)  # more than the kernel takes for a client that reads nothing


@asynccontextmanager
async def serving(path: Path, application: Application, *, failures: int = 0) -> AsyncIterator[StreamsServer]:
    """The server until the end of the context. Raises what its stop raises; so many callbacks of the loop may fail."""
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    config = uvicorn.Config(
        application, uds=str(path), log_config=None, lifespan="off", access_log=False, timeout_graceful_shutdown=1,
        http=RequestProtocol, ws=SocketProtocol,
    )  # fmt: skip
    server = StreamsServer(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(120):
        while not server.started:
            await asyncio.sleep(0.01)
        yield server
        server.should_exit = True
        await running
    assert len(failed) == failures, failed


async def answer(send: Any, status: int, *, length: int = 0, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % length)]})
    await send({"type": "http.response.body", "body": body, "more_body": len(body) < length})


@pytest.mark.parametrize("length", [0, 5000], ids=["answered", "answering"])
@pytest.mark.parametrize("chunks", [1, PIECES_AT_ONCE * 3], ids=["at once", "in slices"])
def test_a_body_that_is_malformed_behind_an_early_answer_ends_the_connection(
    tmp_path: Path, chunks: int, length: int
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answer(send, 401, length=length)
        if length:
            while (await receive())["type"] != "http.disconnect":
                pass

    async def exchange() -> bytes:
        async with serving(tmp_path / "s", application) as server:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            if chunks == 1:
                writer.write(CHUNKED + CHUNK)
                got = await reader.readuntil(b"\r\n\r\n")
                writer.write(b"no number\r\n")
            else:
                writer.write(CHUNKED + CHUNK * chunks + b"no number\r\n")
                got = b""
            got += await reader.read()  # the server closes
            writer.close()
            assert not server.server_state.connections
        return got

    got = asyncio.run(exchange())
    assert got.startswith(b"HTTP/1.1 401 ")
    assert got.count(b"HTTP/1.1") == 1


def test_a_body_that_is_malformed_before_the_answer_is_refused(tmp_path: Path) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def exchange() -> bytes:
        async with serving(tmp_path / "s", application):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(CHUNKED + CHUNK * PIECES_AT_ONCE * 3 + b"no number\r\n")
            got = await reader.read()  # the server closes
            writer.close()
        return got

    assert asyncio.run(exchange()).startswith(b"HTTP/1.1 400 ")


async def broken_answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """One that ends before its length."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % (8 << 20))]})
    await send({"type": "http.response.body", "body": UNREAD})


async def refusing(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "websocket.http.response.start", "status": 403, "headers": [(b"content-length", b"5")]})
    await asyncio.Event().wait()


async def closed_by_client(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "bytes": UNREAD})
    await asyncio.Event().wait()


async def upload(stored: list[str]) -> None:
    """What stores how far it is when the server stops."""
    with cancelled_at_stop():
        try:
            await asyncio.Event().wait()
        finally:
            stored.append("upload")


@pytest.mark.parametrize(
    ("application", "sent", "then"),
    [
        (broken_answer, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b""),
        (refusing, UPGRADE + b"\r\n", b""),
        (closed_by_client, UPGRADE + b"\r\n", CLOSE_FRAME),
    ],
)
def test_no_connection_keeps_the_server_from_its_stop(
    tmp_path: Path, application: Application, sent: bytes, then: bytes
) -> None:
    stored: list[str] = []

    async def stop() -> None:
        task = asyncio.create_task(upload(stored))
        async with serving(tmp_path / "s", application):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"), limit=1024)
            writer.write(sent)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(then)
            await asyncio.sleep(0.1)  # what was sent is handled
        writer.close()
        assert task.cancelled()

    asyncio.run(stop())
    assert stored == ["upload"]


def test_uploads_are_stored_where_the_stop_of_a_connection_fails(tmp_path: Path) -> None:
    stored: list[str] = []

    class Broken:
        def shutdown(self) -> None:
            raise RuntimeError("broken")

    async def serve() -> None:
        async with serving(tmp_path / "s", broken_answer) as server:
            connections: set[Any] = server.server_state.connections  # type: ignore[assignment]
            connections.add(Broken())

    async def stop() -> None:
        task = asyncio.create_task(upload(stored))
        with pytest.raises(RuntimeError, match="broken"):
            await serve()
        assert (task.cancelled(), stored) == (True, ["upload"])

    asyncio.run(stop())


async def listening(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    while not (await receive())["type"].endswith(".disconnect"):
        pass


@pytest.mark.parametrize(
    ("parser", "method", "sent", "then", "works"),
    [
        (SlicedConnection, "next_event", CHUNKED, CHUNK * PIECES_AT_ONCE * 3, PIECES_AT_ONCE * 2),
        (FrameCount, "is_exceeded", UPGRADE + b"\r\n", PING_FRAME * (FRAMES_AT_ONCE + 9), FRAMES_AT_ONCE + 1),
    ],
)
def test_a_failure_in_a_later_slice_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parser: type, method: str, sent: bytes, then: bytes, works: int
) -> None:
    real, calls = getattr(parser, method), itertools.count()

    def failing(*args: Any) -> Any:
        if next(calls) > works:
            raise ZeroDivisionError
        return real(*args)

    async def exchange() -> None:
        async with serving(tmp_path / "s", listening, failures=1) as server:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(sent)
            if sent is not CHUNKED:
                await reader.readuntil(b"\r\n\r\n")
            monkeypatch.setattr(parser, method, failing)
            writer.write(then)
            with contextlib.suppress(ConnectionError):
                await reader.read()  # the server closes
            writer.close()
            assert not server.server_state.connections

    asyncio.run(exchange())


def test_an_upgrade_behind_an_answered_body_reads_nothing_before_its_handshake(tmp_path: Path) -> None:
    """Otherwise what the client sends would be kept without a limit while a sandbox wakes."""

    async def exchange() -> None:
        wakes, woken = asyncio.Event(), asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await answer(send, 200)
                return
            wakes.set()
            await woken.wait()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] != "websocket.disconnect":
                if message["type"] == "websocket.receive":
                    await send({**message, "type": "websocket.send"})

        async with serving(tmp_path / "s", application) as server:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(CHUNKED + CHUNK * PIECES_AT_ONCE * 3 + b"0\r\n\r\n" + UPGRADE + b"\r\n")
            await wakes.wait()
            [connection] = server.server_state.connections
            assert isinstance(connection, SocketProtocol)
            assert not connection.transport.is_reading()
            woken.set()
            await reader.readuntil(b"HTTP/1.1 101 ")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\x82\x81\0\0\0\0z")
            assert await reader.readexactly(3) == b"\x82\x01z"
            writer.close()

    asyncio.run(exchange())


@pytest.mark.parametrize("header", [b"Sec-WebSocket-Protocol: \xff", b"Connection: \xff, upgrade", b"Host: xn--\xff"])
def test_an_upgrade_with_a_header_that_is_no_text_is_refused(tmp_path: Path, header: bytes) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        pytest.fail("called")

    async def exchange() -> bytes:
        async with serving(tmp_path / "s", application) as server:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            name = header.partition(b":")[0]
            rest = b"".join(line for line in UPGRADE.splitlines(keepends=True) if not line.startswith(name))
            writer.write(rest + header + b"\r\n\r\n")
            got = await reader.read()  # the server closes
            writer.close()
            assert not server.server_state.connections
        return got

    assert asyncio.run(exchange()).startswith(b"HTTP/1.1 400 ")
