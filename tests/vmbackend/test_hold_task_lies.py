"""Tasks of a guest that sends anything: it costs that guest's connection, bounded memory, and errors that are known."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.vmbackend.lying_guest import LyingGuest, Script, run, with_guests
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.command import CommandStart
from vmbackend.guest.hold.frames import Answer, Request, number, text, texts
from vmbackend.guest.hold.task_output import TaskOutput
from vmbackend.guest.hold.task_pieces import MAX_GAPS, PIECE, TaskPiece
from vmbackend.guest.hold.task_record import TaskRecord
from vmbackend.guest.hold.tasks import TaskOptions

MIB = 1 << 20
WINDOW = 256 * 1024
TRUE = CommandStart(["true"], {}, "/", None)
EXITED, RUNNING = 2, 1


def record(
    id: int = 1, status: int = RUNNING, *, end: int = 0, words: tuple[str, ...] = ("true",), **more: int
) -> bytes:
    times = number(more.get("created", 1000), 8) + number(more.get("started", 1000), 8) + number(0, 8)
    head = number(id, 8) + number(status, 1) + number(more.get("code", 0), 4) + number(more.get("pid", 7), 4)
    rest = number(more.get("flags", 0), 1) + times + number(more.get("ttl", 600), 4)
    return head + rest + number(more.get("start", 0), 8) + number(end, 8) + text("") + texts(list(words))


def output(offset: int, data: bytes, which: int = 1) -> bytes:
    return number(offset, 8) + number(which, 1) + data


Say = Callable[[LyingGuest, int], Awaitable[None]]


def guest_with(say: Say) -> Script:
    """A guest that accepts a followed start, and then says something to the follower."""

    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        kind, about, body = await guest.hear()
        assert kind == Request.TASK_START
        follower = int.from_bytes(body[33:37], "big")
        guest.answer(Answer.DONE, about, record())
        await say(guest, follower)
        await asyncio.sleep(60)

    return script


async def read(client: HoldClient, window: int = WINDOW) -> list[TaskPiece | TaskRecord]:
    _, found = await client.tasks.start_followed(TRUE, TaskOptions(), window=window)
    return await read_on(found)


async def read_on(found: TaskOutput) -> list[TaskPiece | TaskRecord]:
    seen: list[TaskPiece | TaskRecord] = [await found.read()]
    while not isinstance(seen[-1], TaskRecord):
        seen.append(await found.read())
    return seen


@pytest.mark.parametrize(
    "lies",
    [
        [(Answer.TASK_OUTPUT, b"")],
        [(Answer.TASK_OUTPUT, output(0, b""))],
        [(Answer.TASK_OUTPUT, output(0, b"a", 0))],
        [(Answer.TASK_OUTPUT, output(0, b"a", 3))],
        [(Answer.TASK_OUTPUT, output(2**63, b"a"))],
        [(Answer.TASK_OUTPUT, output(0, b"abc")), (Answer.TASK_OUTPUT, output(2, b"c"))],
        [(Answer.TASK_OUTPUT, output(0, b"a" * 101))],
        [(Answer.TASK_OUTPUT, output(0, b"a" * 100)), (Answer.TASK_OUTPUT, output(2**40, b"a"))],
        [(Answer.TASK_ENDED, b"")],
        [(Answer.TASK_ENDED, record(1, EXITED)[:-1])],
        [(Answer.TASK_ENDED, record(1, EXITED) + b"x")],
        [(Answer.TASK_ENDED, record(2, EXITED))],
        [(Answer.TASK_ENDED, record(1, RUNNING))],
        [(Answer.TASK_ENDED, record(1, 4))],
        [(Answer.TASK_OUTPUT, output(0, b"abc")), (Answer.TASK_ENDED, record(1, EXITED, end=2))],
        [(Answer.TASK_ENDED, record(1, EXITED)[:-12] + b"\xff" * 12)],
        [(Answer.TASK_ENDED, record(1, EXITED, words=("x",) * 257))],
    ],
)
def test_a_lie_about_output_costs_the_connection(lies: list[tuple[int, bytes]]) -> None:
    async def say(guest: LyingGuest, follower: int) -> None:
        for kind, body in lies:
            guest.answer(kind, follower, body)

    async def work() -> None:
        client = with_guests(guest_with(say))
        with pytest.raises(GuestUnreachable):
            await read(client, window=100)
        await client.close()

    run(work())


@pytest.mark.parametrize(
    "second", [(Answer.TASK_ENDED, record(1, EXITED, code=9)), (Answer.TASK_OUTPUT, output(0, b"a"))]
)
def test_after_the_end_nothing_is_taken(second: tuple[int, bytes]) -> None:
    async def say(guest: LyingGuest, follower: int) -> None:
        guest.answer(Answer.TASK_ENDED, follower, record(1, EXITED, code=5))
        guest.answer(second[0], follower, second[1])

    async def work() -> None:
        client = with_guests(guest_with(say))
        seen = await read(client)
        assert isinstance(seen[0], TaskRecord)
        assert (len(seen), seen[0].exit_code) == (1, 5)
        with pytest.raises(GuestUnreachable):
            await client.list_terminals()
        await client.close()

    run(work())


def test_what_is_for_nobody_is_passed_over() -> None:
    async def say(guest: LyingGuest, follower: int) -> None:
        for each in (0, follower + 1, 2**32 - 1):
            guest.answer(Answer.TASK_OUTPUT, each, output(0, b"x" * 1000))
            guest.answer(Answer.TASK_ENDED, each, b"anything")
        guest.answer(Answer.TASK_ENDED, follower, record(1, EXITED))

    async def work() -> None:
        client = with_guests(guest_with(say))
        assert len(await read(client)) == 1
        await client.close()

    run(work())


def test_a_gap_of_any_size_behind_unread_bytes_is_a_gap() -> None:
    async def say(guest: LyingGuest, follower: int) -> None:
        for at in range(0, WINDOW, 16384):
            guest.answer(Answer.TASK_OUTPUT, follower, output(at, b"a" * 16384))
            if at == WINDOW // 2:
                break
        guest.answer(Answer.TASK_OUTPUT, follower, output(2**62, b"end"))
        guest.answer(Answer.TASK_ENDED, follower, record(1, EXITED, end=2**62 + 3))

    async def work() -> None:
        client = with_guests(guest_with(say))
        seen = await read(client)
        assert isinstance(seen[-2], TaskPiece)
        assert (seen[-2].offset, seen[-2].data) == (2**62, b"end")
        await client.close()

    run(work())


def used_by_a_flood(step: int, count: int) -> int:
    """Bytes of memory for pieces of one byte, whose outputs alternate, before any is read."""
    measured = 0

    async def say(guest: LyingGuest, follower: int) -> None:
        for at in range(count):
            guest.answer(Answer.TASK_OUTPUT, follower, output(at * step, b"%d" % (at % 10), 1 + at % 2))
            if at % 4096 == 0:
                await asyncio.sleep(0)
        guest.answer(Answer.TASK_ENDED, follower, record(1, EXITED, end=count * step))

    async def work() -> None:
        nonlocal measured
        client = with_guests(guest_with(say))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        _, found = await client.tasks.start_followed(TRUE, TaskOptions(), window=WINDOW)
        await asyncio.sleep(0)
        while found._end is None:
            await asyncio.sleep(0.01)
        measured = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        seen = await read_on(found)
        pieces = [each for each in seen if isinstance(each, TaskPiece)]
        assert [(each.offset, each.output, each.data) for each in pieces] == [
            (at * step, 1 + at % 2, b"%d" % (at % 10)) for at in range(count)
        ]
        await client.close()

    run(work())
    return measured


def test_a_full_window_of_single_bytes_takes_little_memory() -> None:
    assert used_by_a_flood(1, WINDOW) < 4 * MIB
    assert used_by_a_flood(3, MAX_GAPS) < MIB


def test_endless_gaps_cost_the_connection() -> None:
    async def say(guest: LyingGuest, follower: int) -> None:
        for at in range(MAX_GAPS + 2):
            guest.answer(Answer.TASK_OUTPUT, follower, output(at * 2, b"a"))

    async def work() -> None:
        client = with_guests(guest_with(say))
        _, found = await client.tasks.start_followed(TRUE, TaskOptions(), window=WINDOW)
        assert found
        await asyncio.sleep(0.2)
        with pytest.raises(GuestUnreachable):
            await client.list_terminals()
        await client.close()

    run(work())


def test_pieces_that_go_on_are_read_together() -> None:
    said = asyncio.Event()

    async def say(guest: LyingGuest, follower: int) -> None:
        for at in range(PIECE + 1):
            guest.answer(Answer.TASK_OUTPUT, follower, output(at, b"a"))
        guest.answer(Answer.TASK_ENDED, follower, record(1, EXITED, end=PIECE + 1))
        said.set()

    async def work() -> None:
        client = with_guests(guest_with(say))
        _, found = await client.tasks.start_followed(TRUE, TaskOptions(), window=WINDOW)
        await said.wait()
        await asyncio.sleep(1)
        pieces = [each for each in await read_on(found) if isinstance(each, TaskPiece)]
        assert sum(len(each.data) for each in pieces) == PIECE + 1
        assert len(pieces) < 20
        await client.close()

    run(work())


Ask = Callable[[HoldClient], Awaitable[object]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.tasks.list(),
        lambda client: client.tasks.show(5),
        lambda client: client.tasks.remove(5),
        lambda client: client.tasks.give_input(5, b"x", ends=False),
        lambda client: client.tasks.follow(5, offset=0, window=100),
        lambda client: client.tasks.follow_last(5, 100, 100),
        lambda client: client.tasks.start(TRUE, TaskOptions()),
    ],
)
@pytest.mark.parametrize(
    "lie",
    [
        b"x",
        b"\1",
        bytes(100),
        b"\xff" * 100,
        record(6, EXITED)[:-1],
        b"\0" + number(2**32 - 1, 4) + record(5),
        b"\1" + b"".join(number(len(record(id)), 4) + record(id) for id in (5, 5)),
        b"\1" + b"".join(number(len(record(id)), 4) + record(id) for id in (5, 6)),
    ],
)
def test_an_answer_with_garbage_costs_the_connection_or_is_believed(ask: Ask, lie: bytes) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            _, about, _ = await guest.hear()
            guest.answer(Answer.DONE, about, lie)

    async def work() -> None:
        client = with_guests(script)
        with suppress(GuestUnreachable):
            await ask(client)
        await client.close()

    run(work())


@pytest.mark.parametrize("name", ["show", "remove"])
def test_the_record_of_another_task_is_no_answer(name: str) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        guest.answer(Answer.DONE, (await guest.hear())[1], record(6, EXITED))

    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(GuestUnreachable):
            await getattr(client.tasks, name)(5)
        await client.close()

    run(work())
