"""WebSockets of the proxy whose servers or clients do what they may not."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from unittest.mock import Mock

import pytest
from websockets.asyncio.server import ServerConnection

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.proxied import answering, run, server, until
from tests.workspaces.runtime.proxied_sockets import Socket, acceptance, accepting, websockets
from vmbackend.guest.hold.connections import HeldConnection
from workspaces.runtime.proxy import socket_exchange, waiting_messages
from workspaces.runtime.proxy.socket_exchange import SocketRequest
from workspaces.runtime.proxy.targets import LoopbackPort

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


def test_a_ping_after_the_clients_close_is_no_error(
    holder: Holder, guests: Guests, caplog: pytest.LogCaptureFixture
) -> None:
    async def pings_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(6)
        writer.write(b"\x89\x00")
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.write(b"\x88\x02\x03\xe8")

    async def work() -> None:
        async with server(accepting(pings_late)) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            socket.leave(1000)
            await asyncio.wait_for(socket.running, 10)

    with caplog.at_level(logging.ERROR):
        run(work())
    assert not caplog.records


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"Sec-WebSocket-Protocol: \xe9", id="subprotocol"),
        pytest.param(b"Sec-WebSocket-Extensions: \xe9", id="extensions"),
        pytest.param(b"Connection: Upgrade, \xe9", id="connection"),
    ],
)
def test_an_acceptance_that_is_no_text_is_refused(holder: Holder, guests: Guests, line: bytes) -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n" + line + b"\r\n\r\n"

    async def work() -> None:
        async with server(answering(answer)) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            assert (await socket.event("http.response.start"))["status"] == 502
            await socket.running

    run(work())


@pytest.mark.parametrize("more", [b"/\xe9", b"/a b", b"/?x=\xff"])
def test_a_path_that_cannot_be_passed_on_is_refused(holder: Holder, guests: Guests, more: bytes) -> None:
    async def work() -> None:
        async with server(answering(b"")) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            socket.scope["raw_path"] = f"/r/proxy/{port}".encode() + more
            assert (await socket.event("http.response.start"))["status"] in (400, 502)
            await socket.running

    run(work())


def test_a_header_that_cannot_be_passed_on_is_refused(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        async with server(answering(b"")) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}", ("X A", "1"))
            assert (await socket.event("http.response.start"))["status"] == 400
            await socket.running

    run(work())


def test_a_client_that_leaves_while_its_server_takes_nothing(
    holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_exchange, "TAKE_SECONDS", 1.0)
    ends = asyncio.Event()

    async def takes_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
        await ends.wait()

    async def work() -> None:
        async with server(accepting(takes_nothing)) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            for _ in range(20):
                socket.say(bytes=bytes(1 << 20))
            socket.leave(1001)
            await asyncio.wait_for(socket.running, 20)
            ends.set()

    run(work())


def test_a_server_that_says_more_and_more_does_not_keep_a_client_that_has_left(
    holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_exchange, "CLOSE_SECONDS", 1.0)

    async def says_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x01\x01x")
        while not reader.at_eof():
            writer.write(b"\x89\x00\x00\x01x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async def work() -> None:
        async with server(accepting(says_more)) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            socket.leave(1000)
            await asyncio.wait_for(socket.running, 10)

    run(work())


def test_a_client_that_reads_nothing_is_left_with_the_end_of_its_token(
    api: Caller, holder: Holder, guests: Guests, vmhost: FakeHost
) -> None:
    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            writer.write(b"\x82\x7e\x10\x00" + bytes(4096))
            await writer.drain()

    async def work() -> None:
        async with server(accepting(floods)) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            socket.takes.clear()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(api.post, f"/workspace/{holder.id}/runtime-api-access/token")
            await asyncio.wait_for(socket.running, 5)

    run(work())


def test_a_message_counts_by_its_bytes(holder: Holder, guests: Guests) -> None:
    async def large(connection: ServerConnection) -> None:
        await connection.send("\u20ac" * ((1 << 20) - 1))

    async def work() -> None:
        async with websockets(large) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            assert (await socket.event("close"))["code"] == 1009
            await socket.running

    run(work())


def has_waiting(least: int) -> bool:
    return sum(waiting_messages._by_machine.values()) >= least


def test_messages_that_wait_are_limited_for_all_sockets_together(
    holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_messages, "MAX_WAITING", (3 << 20) + 4096)

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x02\x7f" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20))
        await reader.readexactly(1)
        writer.write(b"\x80\x01x")
        await reader.read()

    async def work() -> None:
        async with server(accepting(half)) as port:
            sockets: list[Socket] = []
            for number in range(3):
                sockets.append(Socket(f"/proxy/{port}/?token={holder.token}"))
                await sockets[-1].event("accept")
                await until(partial(has_waiting, (number + 1) << 20))
            refused = Socket(f"/proxy/{port}/?token={holder.token}")
            await refused.event("accept")
            assert (await refused.event("close"))["code"] == 1013
            await refused.running
            for socket in sockets:
                socket.say(text="go on")
                assert len((await socket.event("send"))["bytes"]) == (1 << 20) + 1
                socket.leave(1000)
                await socket.running
            assert set(waiting_messages._by_machine.values()) == {0}

    run(work())


class Fragments(HeldConnection):
    """A connection that accepts a socket, and says a message in empty parts."""

    def __init__(self, blocks: int) -> None:
        super().__init__(1)
        self._blocks = blocks
        self._link = Mock()
        self._handshake = b""

    async def write(self, data: bytes) -> None:
        self._handshake += data

    async def rest(self, seconds: float) -> None:
        pass

    @asynccontextmanager
    async def charged(self) -> AsyncIterator[None]:
        yield

    async def read(self) -> bytes:
        if self._handshake:
            handshake, self._handshake = self._handshake, b""
            return acceptance(handshake) + b"\x01\x00"
        self._blocks -= 1
        return b"\x00\x00" * 16384 if self._blocks else b"\x80\x02ok"


def test_a_message_of_empty_parts_takes_no_memory() -> None:
    async def work() -> int:
        socket = socket_exchange._Socket(Fragments(10))
        await socket.begin(SocketRequest(b"/", [], (), LoopbackPort("127.0.0.1", 80)))
        tracemalloc.start()
        try:
            sending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            assert await socket.next_said(sending) == "ok"
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(asyncio.wait_for(work(), 60)) < 512 * 1024
