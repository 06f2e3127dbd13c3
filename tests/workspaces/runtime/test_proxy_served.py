"""The proxy behind the server of streams itself: what its clients see on the wire."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import websockets
from websockets.asyncio.client import unix_connect

from config.serve_asgi import streams_server
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.proxied import answering, ok, run, server
from tests.workspaces.runtime.test_proxy_sockets import echo
from tests.workspaces.runtime.test_proxy_sockets import websockets as websocket_server

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]
MIB = 1 << 20


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Path]:
    """The socket of a server in this process."""
    path = tmp_path / "s"
    made = streams_server(["--uds", str(path)])
    thread = threading.Thread(target=made.run)
    thread.start()
    while not made.started:
        time.sleep(0.01)
    yield path
    made.should_exit = True
    thread.join(20)


@asynccontextmanager
async def wire(streams: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(str(streams))
    try:
        yield reader, writer
    finally:
        writer.close()


def head(holder: Holder, path: str, *lines: str, method: str = "GET") -> bytes:
    given = [f"{method} /r{path} HTTP/1.1", "Host: testserver", f"Authorization: Bearer {holder.token}", *lines]
    return "\r\n".join(given).encode() + b"\r\n\r\n"


async def begun(reader: asyncio.StreamReader) -> tuple[int, list[str]]:
    """Status and lines of the head of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    return int(lines[0].split(" ")[1]), lines[1:]


def test_answers_on_the_wire(holder: Holder, guests: Guests, streams: Path) -> None:
    async def work() -> None:
        answer = ok(b"hello", b"Date: Mon, 01 Jan 2024 00:00:00 GMT", b"Server: mine", b"X-Mine: 1")
        async with server(answering(answer)) as port, wire(streams) as (reader, writer):
            for method in ("GET", "HEAD", "OPTIONS", "X-ANY"):
                writer.write(head(holder, f"/proxy/{port}/", method=method))
                status, lines = await begun(reader)
                names = [line.partition(":")[0].lower() for line in lines]
                assert (status, names.count("date"), names.count("x-mine")) == (200, 1, 1), (method, lines)
                assert names.count("content-length") == 1
                assert "server" not in names
                if method != "HEAD":
                    assert await reader.readexactly(5) == b"hello"

    run(work())


def test_trailers_on_the_wire(holder: Holder, guests: Guests, streams: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nab\r\n0\r\n"

    async def work() -> None:
        trailers = b"X-Sum: 1\r\nX-Sum: 2\r\nSet-Cookie: a=1\r\n\r\n"
        async with server(answering(answer + trailers)) as port, wire(streams) as (reader, writer):
            for _ in range(2):
                writer.write(head(holder, f"/proxy/{port}/"))
                await begun(reader)
                assert await reader.readuntil(b"2\r\n\r\n") == b"2\r\nab\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n"
            writer.write(head(holder, f"/proxy/{port}/", method="HEAD"))
            assert (await begun(reader))[0] == 200
            writer.write(head(holder, f"/proxy/{port}/", "Connection: close").replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            await begun(reader)
            assert await reader.read() == b"ab"
        async with server(answering(ok())) as port, wire(streams) as (reader, writer):
            writer.write(head(holder, f"/proxy/{port}/"))
            await begun(reader)
            assert await reader.readexactly(5) == b"hello"

    run(work())


def test_both_directions_at_once_on_the_wire(holder: Holder, guests: Guests, streams: Path) -> None:
    async def echo_chunks(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"Expect" not in head
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while (line := await reader.readline()) != b"0\r\n":
            writer.write(line + await reader.readexactly(int(line, 16) + 2))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def work() -> None:
        async with server(echo_chunks) as port, wire(streams) as (reader, writer):
            lines = "Transfer-Encoding: chunked", "Expect: 100-continue"
            writer.write(head(holder, f"/proxy/{port}/", *lines, method="POST"))
            status, _ = await begun(reader)
            if status == 100:
                status, _ = await begun(reader)
            assert status == 200
            for word in (b"one", b"two", b"three"):
                writer.write(b"%x\r\n%s\r\n" % (len(word), word))
                assert await reader.readline() == b"%x\r\n" % len(word)
                assert await reader.readexactly(len(word) + 2) == word + b"\r\n"
            writer.write(b"0\r\n\r\n")
            assert await reader.readexactly(5) == b"0\r\n\r\n"

    run(work())


def test_an_answer_that_ends_early_and_a_client_that_leaves(holder: Holder, guests: Guests, streams: Path) -> None:
    gone = asyncio.Event()

    async def endless(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        assert await reader.read(1) == b""
        gone.set()

    async def work() -> None:
        short = answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n")
        async with server(short) as port, wire(streams) as (reader, writer):
            writer.write(head(holder, f"/proxy/{port}/"))
            assert (await begun(reader))[0] == 200
            assert await reader.read() == b"5\r\nshort\r\n"  # and no last chunk
        async with server(endless) as port:
            async with wire(streams) as (reader, writer):
                writer.write(head(holder, f"/proxy/{port}/"))
                await begun(reader)
                assert await reader.readexactly(10) == b"5\r\nbegun\r\n"
            await asyncio.wait_for(gone.wait(), 5)

    run(work())


def test_a_refusal_reaches_a_client_that_still_sends(holder: Holder, guests: Guests, streams: Path) -> None:
    async def refuse(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    async def work() -> None:
        async with server(refuse) as port, wire(streams) as (reader, writer):
            writer.write(head(holder, f"/proxy/{port}/", f"Content-Length: {8 * MIB}", method="PUT"))
            writer.write(b"x" * (4 * MIB))
            assert (await begun(reader))[0] == 413
            assert await reader.readexactly(2) == b"no"

    run(work())


def test_a_websocket_on_the_wire(holder: Holder, guests: Guests, streams: Path) -> None:
    async def work() -> None:
        async with websocket_server(echo, subprotocols=["b"]) as port:
            uri = f"ws://testserver/r/proxy/{port}/?token={holder.token}"
            async with unix_connect(str(streams), uri, subprotocols=[websockets.Subprotocol("b")]) as client:
                assert client.subprotocol == "b"
                for message in ("text", b"bytes", "x" * MIB):
                    await client.send(message)
                    assert await client.recv() == message
                await client.close(4002, "done")
            with pytest.raises(websockets.InvalidStatus) as refused:
                await unix_connect(str(streams), f"ws://testserver/r/proxy/1/?token={holder.token}")
            assert refused.value.response.status_code == 502

    run(work())
