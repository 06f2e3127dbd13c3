"""Connections of a guest, or of a client, that says anything: it costs that side its link, and nothing else."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.lying_guest import LyingGuest, Script, run, with_guests
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.connections import WINDOW
from vmbackend.guest.hold.errors import RequestUnknown
from vmbackend.guest.hold.frames import Answer, Failure, Request, number

LOOPBACK = bytes(10) + b"\xff\xff\x7f\0\0\1"
needs_hold = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
Lies = list[tuple[int, bytes]]


def guest_with(lies: Lies, *, granted: int = WINDOW) -> Script:
    """A guest that accepts a connection, and then says something about it."""

    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        kind, about, body = await guest.hear()
        assert kind == Request.CONNECT
        guest.answer(Answer.DONE, about, number(granted, 8))
        for kind, data in lies:
            guest.answer(kind, int.from_bytes(body[:4], "big"), data)
        await asyncio.sleep(60)

    return script


@pytest.mark.parametrize(
    "lies",
    [
        [(Answer.CONNECT_DATA, b"")],
        [(Answer.CONNECT_DATA, b"x" * 30000)] * 5,
        [(Answer.CONNECT_ENDED, b"")],
        [(Answer.CONNECT_ENDED, b"\2")],
        [(Answer.CONNECT_ENDED, b"\0\0")],
        [(Answer.CONNECT_ENDED, b"\0"), (Answer.CONNECT_ENDED, b"\0")],
        [(Answer.CONNECT_ENDED, b"\0"), (Answer.CONNECT_DATA, b"x")],
        [(Answer.CONNECT_GRANT, b"")],
        [(Answer.CONNECT_GRANT, number(WINDOW - 1, 8))],
        [(Answer.CONNECT_GRANT, number(WINDOW + 1, 8))],
        [(Answer.CONNECT_GRANT, b"\xff" * 8)],
        [(Answer.CONNECT_GRANT, number(WINDOW, 8) + b"x")],
        [(51, b"x")],
    ],
)
def test_a_lie_about_a_connection_costs_the_link(lies: Lies) -> None:
    async def work() -> None:
        client = with_guests(guest_with(lies))
        connection = await client.connections.open("127.0.0.1", 80)
        await asyncio.wait_for(connection.link.lost, 10)
        with pytest.raises(GuestUnreachable):
            await connection.write(b"x")
        await client.close()

    run(work())


@pytest.mark.parametrize("about", [0, 2, 2**32 - 1])
def test_bytes_of_a_connection_that_never_was_cost_the_link(about: int) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, request, _ = await guest.hear()
        guest.answer(Answer.DONE, request, number(0, 8))
        guest.answer(Answer.CONNECT_DATA, about, b"x")
        await asyncio.sleep(60)

    async def work() -> None:
        client = with_guests(script)
        connection = await client.connections.open("127.0.0.1", 80)
        with pytest.raises(GuestUnreachable):
            await connection.read()
        await client.close()

    run(work())


@pytest.mark.parametrize("answer", [b"", number(WINDOW + 1, 8), number(0, 8) + b"x"])
def test_an_answer_that_is_none_is_refused(answer: bytes) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, request, _ = await guest.hear()
        guest.answer(Answer.DONE, request, answer)
        await asyncio.sleep(60)

    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(GuestUnreachable):
            await client.connections.open("127.0.0.1", 80)
        await client.close()

    run(work())


def test_an_older_kit_is_known_by_its_answer() -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, request, _ = await guest.hear()
        guest.answer(Answer.FAILED, request, number(Failure.BAD_REQUEST, 2), b"there is no such request")
        await asyncio.sleep(60)

    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(RequestUnknown):
            await client.connections.open("127.0.0.1", 80)
        await client.close()

    run(work())


def test_a_window_of_the_smallest_pieces_takes_little_memory() -> None:
    async def work() -> None:
        client = with_guests(guest_with([(Answer.CONNECT_DATA, b"x")] * 100_000))
        tracemalloc.start()
        connection = await client.connections.open("127.0.0.1", 80)
        while connection._received < 100_000:
            await asyncio.sleep(0.05)
        pieces = len(connection._pieces)
        tracemalloc.stop()
        assert pieces <= 4
        await client.close()

    run(work())


@pytest.fixture
def hold(hold: LocalHold) -> Iterator[LocalHold]:
    """A hold that nothing has ended."""
    yield hold
    assert hold.process.poll() is None


@pytest.fixture
def peer(hold: LocalHold) -> Iterator[RawPeer]:
    with RawPeer(hold) as peer:
        peer.greet(os.urandom(16))
        yield peer


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(10)
        yield made


def ask(peer: RawPeer, listener: socket.socket, id: int, window: int = WINDOW) -> socket.socket:
    port = listener.getsockname()[1]
    peer.send(Request.CONNECT, 9, number(id, 4), number(window, 4), number(port, 2), LOOPBACK)
    assert peer.receive() == (Answer.DONE, 9, number(WINDOW, 8))
    return listener.accept()[0]


@needs_hold
def test_wrong_requests_are_refused_with_their_id(peer: RawPeer, listener: socket.socket) -> None:
    server = ask(peer, listener, 1)
    port = number(listener.getsockname()[1], 2)
    for fields in (
        b"", number(2, 4), number(2, 4) + number(1, 4) + port, number(2, 4) + number(1, 4) + port + LOOPBACK + b"x",
        number(2, 4) + number(1, 4) + b"\0\0" + LOOPBACK, number(2, 4) + number(1, 4) + port + bytes(16),
        number(1, 4) + number(1, 4) + port + LOOPBACK,
    ):  # fmt: skip
        peer.send(Request.CONNECT, 7, fields)
        kind, about, body = peer.receive()
        assert (kind, about, int.from_bytes(body[:2], "big")) == (Answer.FAILED, 7, Failure.BAD_REQUEST)
    server.close()


@needs_hold
def test_bytes_beyond_the_grant_cost_their_client_its_link(
    hold: LocalHold, peer: RawPeer, listener: socket.socket
) -> None:
    server = ask(peer, listener, 1)
    with RawPeer(hold) as other:
        other.greet(os.urandom(16))
        kept = ask(other, listener, 1)
        peer.send(Request.CONNECT_SEND, 0, number(1, 4), b"x" * (WINDOW + 1))
        peer.wait_end()
        assert server.recv(10) == b""
        other.send(Request.LIST, 3)
        assert other.receive()[:2] == (Answer.DONE, 3)
        kept.close()


@needs_hold
def test_no_more_is_sent_than_was_credited(peer: RawPeer, listener: socket.socket) -> None:
    server = ask(peer, listener, 5, window=3)
    server.sendall(b"abcdefgh")
    assert peer.receive() == (Answer.CONNECT_DATA, 5, b"abc")
    peer.send(Request.CONNECT_CREDIT, 0, number(5, 4), number(2, 8))  # late: it changes nothing
    peer.send(Request.CONNECT_CREDIT, 0, number(5, 4), number(5, 8))
    assert peer.receive() == (Answer.CONNECT_DATA, 5, b"de")
    peer.send(Request.CONNECT_CREDIT, 0, number(5, 4), b"\xff" * 8)
    assert peer.receive() == (Answer.CONNECT_DATA, 5, b"fgh")
    server.close()
    assert peer.receive() == (Answer.CONNECT_ENDED, 5, b"\0")


@needs_hold
def test_frames_of_any_kind_end_at_most_their_stream(hold: LocalHold, listener: socket.socket) -> None:
    chance = random.Random(7)
    for _ in range(30):
        with RawPeer(hold) as peer:
            peer.greet(os.urandom(16))
            ask(peer, listener, 1).close()
            for _ in range(50):
                kind, id = chance.randrange(48, 56), number(chance.randrange(3), 4)
                try:
                    peer.send(kind, chance.randrange(4), id, os.urandom(chance.randrange(40)))
                except OSError:
                    break
    with RawPeer(hold) as peer:
        peer.greet(os.urandom(16))
        ask(peer, listener, 1)
