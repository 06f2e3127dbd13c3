"""The hold with a client that sends anything."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.guest.hold.frames import Answer, Failure, Request, number, text, texts

needs_tools = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
MIB = 1 << 20


@pytest.fixture
def hold(hold: LocalHold) -> Iterator[LocalHold]:
    """Which nothing has ended."""
    yield hold
    assert hold.process.poll() is None


def create_frame(script: str, window: int = 1000) -> tuple[bytes, ...]:
    words = texts(["sh", "-c", script])
    return number(80, 2), number(24, 2), number(window, 4), text(""), text(""), words, texts([])


@needs_tools
def test_errors_have_the_requests_id_and_the_connection_goes_on(hold: LocalHold) -> None:
    with RawPeer(hold) as peer:
        peer.greet(os.urandom(16))
        peer.send(Request.CREATE, 1, *create_frame("sleep 1000"))
        assert peer.receive() == (Answer.DONE, 1, number(1, 4))
        bad: list[tuple[int, tuple[bytes, ...], Failure]] = [
            (99, (), Failure.BAD_REQUEST),
            (0, (), Failure.BAD_REQUEST),
            (Request.CREATE, (), Failure.BAD_REQUEST),
            (Request.CREATE, create_frame("true")[:-1], Failure.BAD_REQUEST),
            (Request.CREATE, (*create_frame("true"), b"x"), Failure.BAD_REQUEST),
            (Request.CREATE, (number(0, 2), *create_frame("true")[1:]), Failure.BAD_SIZE),
            (Request.CREATE, (number(80, 2), number(24, 2), number(1, 4), b"\xff" * 4), Failure.BAD_REQUEST),
            (Request.CREATE, (*create_frame("true")[:5], b"\xff" * 4), Failure.BAD_REQUEST),
            (Request.CREATE, (*create_frame("true")[:3], text("a\0b"), *create_frame("true")[4:]), Failure.BAD_REQUEST),
            (Request.INPUT, (number(7, 4), b"x"), Failure.NO_TERMINAL),
            (Request.INPUT, (number(1, 4), b"x" * (MIB + 1)), Failure.INPUT_FULL),
            (Request.RESIZE, (number(1, 4), number(1001, 2), number(1, 2)), Failure.BAD_SIZE),
            (Request.RESIZE, (number(1, 4),), Failure.BAD_SIZE),
            (Request.RESIZE, (b"\0",), Failure.BAD_REQUEST),
            (Request.ATTACH, (number(1, 4), b"\xff" * 8, number(1, 4)), Failure.BAD_OFFSET),
            (Request.ATTACH, (number(1, 4),), Failure.BAD_OFFSET),
            (Request.CLOSE, (number(2**32 - 1, 4),), Failure.NO_TERMINAL),
        ]
        for about, (kind, parts, code) in enumerate(bad, 100):
            peer.send(kind, about, *parts)
            answer = peer.receive()
            assert (answer[0], answer[1], answer[2][:2]) == (Answer.FAILED, about, number(code, 2)), (kind, parts)
        peer.send(Request.CREDIT, 5, number(1, 4), b"\xff" * 8, b"\xff" * 4)  # not answered, and not believed
        peer.send(Request.CLOSE, 6, number(1, 4))
        assert peer.receive() == (Answer.DONE, 6, b"")


@needs_tools
@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 9,
        b"\0" * 9,
        struct.pack(">IBI", 5, Request.LIST, 0),
        struct.pack(">IBI", 27, Request.HELLO, 0) + b"HOLD\0\2" + bytes(16),
        struct.pack(">IBI", 27, Request.HELLO, 0) + b"HALT\0\1" + bytes(16),
        struct.pack(">IBI", 3 << 20, Request.HELLO, 0),
    ],
)
def test_what_is_no_hello_or_too_long_ends_the_connection(hold: LocalHold, data: bytes) -> None:
    with RawPeer(hold) as peer:
        peer.write(data)
        assert peer.receive()[0] == Answer.FAILED
        assert peer.wait_end() == 0


def random_frame(chance: random.Random) -> bytes:
    kind = chance.choice([*range(18), 255])
    parts = [number(chance.randrange(1, 5), 4) if chance.random() < 0.7 else chance.randbytes(4)]
    for _ in range(chance.randrange(6)):
        value = chance.choice([0, 1, 24, 80, 4096, 2**31, 2**32 - 1])
        parts.append(
            chance.choice(
                [number(value, 4), number(value & 0xFFFF, 2), chance.randbytes(3), text("a"), texts(["true"])]
            )
        )
    if kind == Request.CREATE and chance.random() < 0.5:
        parts = list(create_frame(chance.choice(["true", "yes", "sleep 1000", "cat"]), chance.randrange(100_000)))
    if kind == Request.BYE and chance.random() < 0.9:
        kind = Request.LIST
    body = b"".join(parts)
    wrong = chance.random() < 0.01
    return (
        struct.pack(">IBI", chance.randrange(2**32) if wrong else len(body) + 5, kind, chance.randrange(2**32)) + body
    )


@needs_tools
@pytest.mark.parametrize("seed", range(4))
def test_random_frames_harm_no_other_client(hold: LocalHold, seed: int) -> None:
    chance = random.Random(seed)
    with RawPeer(hold) as other:
        other.greet(b"o" * 16)
        for _ in range(30):
            with RawPeer(hold) as peer:
                peer.greet(chance.randbytes(16))
                data = b"".join(random_frame(chance) for _ in range(chance.randrange(200)))
                cut = chance.randrange(len(data) + 1)
                with suppress(BrokenPipeError):
                    peer.write(data[:cut])
            other.send(Request.LIST, 1)
            assert other.receive()[:2] == (Answer.DONE, 1)
    assert hold.memory() < 64 * MIB


@needs_tools
def test_a_client_that_asks_and_never_reads_is_read_no_further(hold: LocalHold) -> None:
    with RawPeer(hold) as peer, RawPeer(hold) as other:
        peer.greet(os.urandom(16))
        other.greet(os.urandom(16))
        assert peer.process.stdin is not None
        pipe = peer.process.stdin.fileno()
        os.set_blocking(pipe, False)
        frame, sent, refused = struct.pack(">IBI", 5, Request.LIST, 0), 0, 0
        while refused < 20:
            try:
                sent += os.write(pipe, (frame * 1000)[sent % len(frame) :])
                assert sent < 8 * MIB
            except BlockingIOError:
                refused += 1
                other.send(Request.LIST, 1)
                assert other.receive()[:2] == (Answer.DONE, 1)
        assert hold.memory() < 8 * MIB
