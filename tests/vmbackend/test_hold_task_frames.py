"""Requests for tasks from a client that sends anything: each costs its own answer, and the hold goes on."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer, needs_cgroups
from tests.vmbackend.hold_tasks import KIB, MIB
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.guest.hold.frames import Answer, Failure, Fields, Request, number, text, texts
from vmbackend.guest.hold.task_record import TaskRecord, TaskStatus, read_task
from vmbackend.guest.hold.tasks import TaskLimits, TaskOptions

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")


@pytest.fixture
def hold(hold: LocalHold) -> Iterator[LocalHold]:
    """Which nothing has ended."""
    yield hold
    assert hold.process.poll() is None


@pytest.fixture
def peer(hold: LocalHold) -> Iterator[RawPeer]:
    with RawPeer(hold) as peer:
        peer.greet(os.urandom(16))
        yield peer


def start_fields(
    words: list[str], *, follower: int = 0, window: int = 0, options: TaskOptions | None = None
) -> tuple[bytes, ...]:
    head = (options or TaskOptions()).encode(), number(follower, 4), number(window, 4)
    return (*head, text(""), text("/"), texts(words), texts([]))


def follow_fields(task: int, follower: int, window: int = 1000, *, offset: int = 0) -> tuple[bytes, ...]:
    return number(task, 8), number(follower, 4), number(window, 4), number(0, 1), number(0, 4), number(offset, 8)


def started(peer: RawPeer, *words: str, options: TaskOptions | None = None) -> int:
    peer.send(Request.TASK_START, 1, *start_fields(list(words), options=options))
    kind, _, body = peer.receive()
    assert kind == Answer.DONE, body
    return read_task(Fields(body)).id


def failure(peer: RawPeer, about: int) -> int:
    kind, id, body = peer.receive()
    assert (kind, id) == (Answer.FAILED, about)
    return int.from_bytes(body[:2], "big")


def alive(peer: RawPeer) -> None:
    peer.send(Request.LIST, 99)
    assert peer.receive()[:2] == (Answer.DONE, 99)


def test_wrong_fields_are_refused_with_the_requests_id(peer: RawPeer) -> None:
    task = number(started(peer, "sleep", "600"), 8)
    good = start_fields(["true"])
    bad: list[tuple[int, tuple[bytes, ...], Failure]] = [
        (Request.TASK_START, (), Failure.BAD_REQUEST),
        (Request.TASK_START, good[:-1], Failure.BAD_REQUEST),
        (Request.TASK_START, (*good, b"x"), Failure.BAD_REQUEST),
        (Request.TASK_START, start_fields([]), Failure.BAD_REQUEST),
        (Request.TASK_START, start_fields(["a\0b"]), Failure.BAD_REQUEST),
        (Request.TASK_START, (*good[:5], b"\xff" * 4), Failure.BAD_REQUEST),
        (Request.TASK_START, (*good[:3], text("u" * 5000), *good[4:]), Failure.BAD_REQUEST),
        (Request.TASK_LIST, (), Failure.BAD_REQUEST),
        (Request.TASK_LIST, (task, b"x"), Failure.BAD_REQUEST),
        (Request.TASK_SHOW, (), Failure.BAD_REQUEST),
        (Request.TASK_SHOW, (task, b"x"), Failure.BAD_REQUEST),
        (Request.TASK_SHOW, (b"\xff" * 8,), Failure.NO_TASK),
        (Request.TASK_INPUT, (task,), Failure.BAD_REQUEST),
        (Request.TASK_INPUT, (task, b"\0", bytes(MIB + 1)), Failure.INPUT_FULL),
        (Request.TASK_REMOVE, (task, b"x"), Failure.BAD_REQUEST),
        (Request.TASK_FOLLOW, (task,), Failure.BAD_REQUEST),
        (Request.TASK_FOLLOW, (task, *follow_fields(0, 1)[1:], b"x"), Failure.BAD_REQUEST),
        (Request.TASK_FOLLOW, (task, *follow_fields(0, 1, offset=1)[1:]), Failure.BAD_OFFSET),
        (Request.TASK_FOLLOW, (task, *follow_fields(0, 1, offset=2**64 - 1)[1:]), Failure.BAD_OFFSET),
    ]
    for about, (kind, parts, code) in enumerate(bad, 100):
        peer.send(kind, about, *parts)
        assert failure(peer, about) == code, (kind, parts)
    alive(peer)


def test_limits_of_a_refused_start_are_not_taken(peer: RawPeer) -> None:
    task = started(peer, "true")
    none = TaskOptions(limits=TaskLimits(log_bytes=0, all_log_bytes=0, running=0, ended=0))
    peer.send(Request.TASK_START, 5, *start_fields([], options=none))
    assert failure(peer, 5) == Failure.BAD_REQUEST
    peer.send(Request.TASK_SHOW, 6, number(task, 8))
    assert peer.receive()[:2] == (Answer.DONE, 6)


def test_a_deadline_beyond_all_time_is_none(peer: RawPeer) -> None:
    far = bytearray(TaskOptions().encode())
    far[21:29] = b"\xff" * 8
    peer.send(Request.TASK_START, 1, bytes(far), *start_fields(["sleep", "600"])[1:])
    task = read_task(Fields(peer.receive()[2])).id
    for _ in range(20):
        alive(peer)
    peer.send(Request.TASK_SHOW, 2, number(task, 8))
    assert not read_task(Fields(peer.receive()[2])).timed_out


def test_followers_of_others_are_not_touched(hold: LocalHold, peer: RawPeer) -> None:
    task = started(peer, "sh", "-c", "cat")
    with RawPeer(hold) as other:
        other.greet(os.urandom(16))
        other.send(Request.TASK_FOLLOW, 1, *follow_fields(task, 7))
        assert other.receive() == (Answer.DONE, 1, b"\0")
        peer.send(Request.TASK_LEAVE, 0, number(task, 8), number(7, 4))
        peer.send(Request.TASK_CREDIT, 0, number(task, 8), number(7, 4), number(0, 8), number(0, 4))
        peer.send(Request.TASK_INPUT, 2, number(task, 8), b"\0hello")
        assert peer.receive() == (Answer.DONE, 2, b"")
        assert other.receive() == (Answer.TASK_OUTPUT, 7, number(0, 8) + b"\1hello")


def test_a_follower_that_is_there_is_not_made_again_and_64_may_be(peer: RawPeer) -> None:
    task = started(peer, "sleep", "600")
    for id in range(1, 65):
        peer.send(Request.TASK_FOLLOW, id, *follow_fields(task, id))
        assert peer.receive()[:2] == (Answer.DONE, id)
    for id in (64, 65):
        peer.send(Request.TASK_FOLLOW, 100, *follow_fields(task, id))
        assert failure(peer, 100) == Failure.TOO_MANY
    alive(peer)


def test_credit_for_what_was_not_sent_is_not_believed(peer: RawPeer) -> None:
    task = started(peer, "sh", "-c", "seq 1 100000; sleep 600")
    peer.send(Request.TASK_FOLLOW, 1, *follow_fields(task, 1, window=100))
    assert peer.receive()[:2] == (Answer.DONE, 1)
    got = len(peer.receive()[2]) - 9
    while got < 100:
        got += len(peer.receive()[2]) - 9
    for received in (101, 2**64 - 1):
        peer.send(Request.TASK_CREDIT, 0, number(task, 8), number(1, 4), number(received, 8), number(2**32 - 1, 4))
    alive(peer)
    peer.send(Request.TASK_CREDIT, 0, number(task, 8), number(1, 4), number(100, 8), number(5, 4))
    assert peer.receive() == (
        Answer.TASK_OUTPUT,
        1,
        number(100, 8) + b"\1" + "".join(f"{n}\n" for n in range(1, 99)).encode()[100:105],
    )


@needs_cgroups
def test_many_ends_at_once_fill_no_connection(hold: LocalHold, peer: RawPeer) -> None:
    """The answers to all removals, and the ends that followers get, are more than a connection has room for."""
    words = ["sleep", "600", *["x" * 2000] * 2]
    options = TaskOptions(limits=TaskLimits(running=96))
    with RawPeer(hold) as other:
        other.greet(os.urandom(16))
        ids = [started(peer, *["sh", "-c", "sleep 600", *words[2:]], options=options) for _ in range(96)]
        for id in ids:
            for follower in range(4):
                other.send(Request.TASK_FOLLOW, 1, *follow_fields(id, 4 * id + follower))
                assert other.receive()[:2] == (Answer.DONE, 1)
        peer.write(b"".join(struct.pack(">IBIQ", 13, Request.TASK_REMOVE, id & 0xFFFF, id) for id in ids))
        removed = [peer.receive() for _ in ids]
        assert {kind for kind, _, _ in removed} == {Answer.DONE}
        assert {about for _, about, _ in removed} == {id & 0xFFFF for id in ids}
        told = [other.receive() for _ in range(4 * len(ids))]
        assert {kind for kind, _, _ in told} == {Answer.TASK_ENDED}
        assert {about for _, about, _ in told} == {4 * id + each for id in ids for each in range(4)}
        assert all(read_task(Fields(body)).status == TaskStatus.EXITED for _, _, body in [*removed, *told])
        alive(peer)
        alive(other)
        assert [path.name for path in hold.tasks.iterdir()] == ["last-id"]


def test_a_second_removal_of_what_is_being_ended_is_refused_or_finds_nothing(peer: RawPeer) -> None:
    task = number(started(peer, "sleep", "600"), 8)
    peer.send(Request.TASK_REMOVE, 0, task)
    peer.send(Request.TASK_REMOVE, 2, task)
    answers = sorted(peer.receive() for _ in range(2))
    assert answers[0][:2] == (Answer.DONE, 0)
    assert answers[1][:2] == (Answer.FAILED, 2)
    alive(peer)


def test_starts_of_two_mib_and_thousands_of_removals(hold: LocalHold, peer: RawPeer) -> None:
    full = 2 * MIB - 200
    words = ["true", *["x" * 100_000] * (full // 100_004 - 1)]
    descriptors, memory = count_descriptors(hold), 0
    for round in range(10):
        task = started(peer, *words)
        remove(peer, task)
        memory = memory or hold.memory()
        assert round >= 0
    for _ in range(2000):
        remove(peer, started(peer, "true"))
    assert count_descriptors(hold) == descriptors
    assert hold.memory() - memory < 256 * KIB
    assert [path.name for path in hold.tasks.iterdir()] == ["last-id"]


def remove(peer: RawPeer, task: int) -> TaskRecord:
    peer.send(Request.TASK_REMOVE, 2, number(task, 8))
    kind, about, body = peer.receive()
    assert (kind, about) == (Answer.DONE, 2), body
    return read_task(Fields(body))


def count_descriptors(hold: LocalHold) -> int:
    return len([*Path(f"/proc/{hold.process.pid}/fd").iterdir()])


def random_frame(chance: random.Random) -> bytes:
    kind = chance.randrange(Request.TASK_START, Request.TASK_LEAVE + 1)
    task, follower = number(chance.choice([0, 1, 2, 3, 4, 5, 2**64 - 1]), 8), number(chance.randrange(4), 4)
    numbers = [number(chance.choice([0, 1, 5, 4096, 2**32 - 1]), 4) for _ in range(3)]
    offset = number(chance.choice([0, 1, 5, 10_000, 2**63, 2**64 - 1]), 8)
    script = chance.choice(["true", "yes", "sleep 600", "cat", "seq 1 100000 >&2", "exec >&- 2>&-; sleep 600"])
    follow = task, follower, numbers[0], number(chance.randrange(4), 1), numbers[1], offset
    limits = TaskLimits(
        chance.choice([0, 5, 4096, MIB]), chance.choice([0, MIB]), chance.randrange(100), chance.randrange(9)
    )
    options = TaskOptions(chance.choice([None, 0.01]), chance.choice([0, 600]), chance.random() < 0.5, limits)
    parts: tuple[bytes, ...] = {
        Request.TASK_START: start_fields(
            ["sh", "-c", script], follower=chance.randrange(4), window=9999, options=options
        ),
        Request.TASK_FOLLOW: follow,
        Request.TASK_CREDIT: (task, follower, offset, numbers[0]),
        Request.TASK_LEAVE: (task, follower),
        Request.TASK_INPUT: (task, b"\0", chance.randbytes(chance.choice([0, 1, 100_000]))),
    }.get(kind, (task,))  # type: ignore[call-overload]
    body = b"".join(parts)
    if chance.random() < 0.2:
        body = body[: chance.randrange(len(body) + 1)]
    return struct.pack(">IBI", len(body) + 5, kind, chance.randrange(2**32)) + body


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_harm_no_other_client(hold: LocalHold, seed: int) -> None:
    chance = random.Random(seed)
    with RawPeer(hold) as other:
        other.greet(b"o" * 16)
        for _ in range(15):
            with RawPeer(hold) as peer:
                peer.greet(chance.randbytes(16))
                data = b"".join(random_frame(chance) for _ in range(chance.randrange(150)))
                with suppress(BrokenPipeError):
                    peer.write(data[: chance.randrange(len(data) + 1)])
            alive(other)
    assert hold.memory() < 64 * MIB
