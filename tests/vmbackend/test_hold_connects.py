"""Connections to servers on the loopback, through a hold of this host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.free_ports import free_port
from tests.vmbackend.hold_factory import LocalHold
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.connections import WINDOW, ConnectionBroken, HeldConnection
from vmbackend.guest.hold.errors import NotConnected, TerminalLimit

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
MIB = 1 << 20
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve, host: str = "127.0.0.1") -> AsyncIterator[int]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    made = await asyncio.start_server(closing, host, 0)
    try:
        yield made.sockets[0].getsockname()[1]
    finally:
        made.close()


@asynccontextmanager
async def connected(hold: LocalHold, port: int, address: str = "127.0.0.1") -> AsyncIterator[HeldConnection]:
    client = hold.client()
    connection = await client.connections.open(address, port)
    try:
        yield connection
    finally:
        client.connections.close(connection)
        await client.close()


async def read_all(connection: HeldConnection) -> bytes:
    found = b""
    while piece := await connection.read():
        found += piece
    return found


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def run(work: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_bytes_pass_both_ways(hold: LocalHold, address: str) -> None:
    async def work() -> None:
        async with server(echo, address) as port, connected(hold, port, address) as connection:
            for word in (b"one", b"two", b"x" * 5000):
                await connection.write(word)
                got = b""
                while len(got) < len(word):
                    got += await connection.read()
                assert got == word

    run(work())


def test_nothing_listens(hold: LocalHold) -> None:
    async def work() -> None:
        client = hold.client()
        with pytest.raises(NotConnected):
            await client.connections.open("127.0.0.1", free_port())
        await client.close()

    run(work())


@pytest.mark.parametrize("address", ["10.0.0.1", "0.0.0.0", "::2", "::ffff:10.0.0.1", "::"])
def test_only_the_loopback_is_reached(hold: LocalHold, address: str) -> None:
    async def work() -> None:
        client = hold.client()
        with pytest.raises(GuestUnreachable):
            await client.connections.open(address, 80)
        await client.close()

    run(work())


def test_a_hundred_megabytes_in_each_direction_take_no_memory(hold: LocalHold) -> None:
    size = 100 * MIB
    block = bytes(range(256)) * 256

    async def take_and_give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = size
        while left:
            left -= len(await reader.read(65536))
        for _ in range(size // len(block)):
            writer.write(block)
            await writer.drain()

    async def work() -> None:
        async with server(take_and_give) as port, connected(hold, port) as connection:
            before = hold.memory()
            for _ in range(size // len(block)):
                await connection.write(block)
            got, expected = 0, block + block
            while piece := await connection.read():
                assert piece == expected[got % 256 : got % 256 + len(piece)]
                got += len(piece)
            assert got == size
            assert hold.memory() - before < 2 * MIB

    run(work())


def test_a_server_that_reads_nothing_takes_a_window_and_what_its_kernel_has(hold: LocalHold) -> None:
    gone = asyncio.Event()
    taken = 0

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await gone.wait()

    async def work() -> None:
        nonlocal taken
        async with server(deaf) as port, connected(hold, port) as connection:
            before = hold.memory()
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    while True:
                        await connection.write(b"x" * 4096)
                        taken += 4096
            assert WINDOW <= taken < 16 * MIB
            assert hold.memory() - before < MIB
            gone.set()

    run(work())


def test_a_reader_that_reads_nothing_stops_the_server_and_nobody_else(hold: LocalHold) -> None:
    sent = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async def work() -> None:
        async with server(talk) as talking, server(echo) as port:
            client = hold.client()
            stuck = await client.connections.open("127.0.0.1", talking)
            await asyncio.sleep(1)
            assert WINDOW <= sent < 16 * MIB
            assert stuck._received == WINDOW
            other = await client.connections.open("127.0.0.1", port)
            await other.write(b"hello")
            assert await other.read() == b"hello"
            client.connections.close(stuck)
            await client.close()

    run(work())


def test_a_server_that_closes_ends_the_bytes_and_one_that_resets_breaks_them(hold: LocalHold) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"last words")
        await writer.drain()

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async def work() -> None:
        async with server(close) as port, connected(hold, port) as connection:
            assert await read_all(connection) == b"last words"
            assert await connection.read() == b""
        async with server(reset) as port, connected(hold, port) as connection:
            await connection.write(b"x")
            with pytest.raises(ConnectionBroken):
                await read_all(connection)

    run(work())


def test_a_closed_connection_ends_at_the_server(hold: LocalHold) -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        ended.set()

    async def work() -> None:
        async with server(wait) as port:
            client = hold.client()
            connection = await client.connections.open("127.0.0.1", port)
            client.connections.close(connection)
            await asyncio.wait_for(ended.wait(), 10)
            ended.clear()
            await client.connections.open("127.0.0.1", port)
            await client.close()
            await asyncio.wait_for(ended.wait(), 10)

    run(work())


def test_a_lost_link_ends_connections_for_both_sides(hold: LocalHold) -> None:
    async def work() -> None:
        async with server(echo) as port, connected(hold, port) as connection:
            hold.cut()
            with pytest.raises(GuestUnreachable):
                await connection.read()
            with pytest.raises(GuestUnreachable):
                await connection.write(b"x")

    run(work())


def test_256_connections_and_no_more(hold: LocalHold) -> None:
    async def work() -> None:
        async with server(echo) as port:
            client = hold.client()
            made = [await client.connections.open("127.0.0.1", port) for _ in range(256)]
            with pytest.raises(TerminalLimit):
                await client.connections.open("127.0.0.1", port)
            for each in made:
                await each.write(b"abc")
            assert [await each.read() for each in made] == [b"abc"] * 256
            client.connections.close(made[0])
            made[0] = await client.connections.open("127.0.0.1", port)
            await client.close()

    run(work())


def test_a_caller_that_gives_up_leaves_nothing(hold: LocalHold, tmp_path: Path) -> None:
    async def work() -> None:
        full = socket.socket()
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        client = hold.client()
        for _ in range(300):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await client.connections.open("127.0.0.1", port)
        async with server(echo) as other:
            connection = await client.connections.open("127.0.0.1", other)
            await connection.write(b"hello")
            assert await connection.read() == b"hello"
        await client.close()
        for each in (full, *waiting):
            each.close()

    run(work())
