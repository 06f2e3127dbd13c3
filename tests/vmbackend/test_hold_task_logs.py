"""Logs of tasks: who is away misses nothing for a minute, nobody stops a task for long, and what is gone is counted."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from tests.vmbackend.hold_factory import LocalHold, compile_hold
from tests.vmbackend.hold_tasks import (
    KIB,
    MIB,
    WINDOW,
    Received,
    begin,
    begin_followed,
    ended,
    read_all,
    read_more,
    run,
    with_client,
)
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.task_record import TaskStatus
from vmbackend.guest.hold.tasks import TaskLimits

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
SMALL = TaskLimits(log_bytes=256 * KIB)
FOLLOW_SECONDS = 2.0


@pytest.fixture(scope="module")
def hasty_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hold that waits for followers for two seconds instead of a minute."""
    program = tmp_path_factory.mktemp("hasty") / "guest"
    compile_hold(program, f"-DFOLLOW_MS={int(FOLLOW_SECONDS * 1000)}")
    return program


@pytest.fixture
def hasty(hasty_program: Path, tmp_path: Path) -> Iterator[LocalHold]:
    hold = LocalHold(hasty_program, tmp_path / "hold")
    yield hold
    hold.close()


def numbers(last: int, first: int = 1) -> bytes:
    return b"".join(b"%d\n" % line for line in range(first, last + 1))


def log_bytes(hold: LocalHold) -> int:
    return sum(path.stat().st_size for path in hold.tasks.glob("l[0-9]*"))


def test_without_a_follower_the_oldest_half_goes_and_the_gap_is_exact(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = await begin(client, "seq 1 300000", limits=SMALL)
        record = await ended(client, record.id)
        everything = numbers(300000)
        assert record.log_truncated
        assert record.log_end == len(everything)
        assert log_bytes(hold) <= SMALL.log_bytes
        seen = await read_all(await client.tasks.follow(record.id, offset=0, window=WINDOW))
        assert seen.gaps == record.log_start == len(everything) - len(seen.out)
        assert seen.out == everything[seen.gaps :]
        assert len(seen.out) >= SMALL.log_bytes // 4

    with_client(hold, work)


def test_the_program_waits_for_a_follower_that_is_behind(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(client, "seq 1 300000", limits=SMALL, window=16 * KIB)
        await asyncio.sleep(1.5)
        assert (await client.tasks.show(record.id)).log_end < 2 * SMALL.log_bytes
        seen = await read_all(output)
        assert (seen.out == numbers(300000), seen.gaps) == (True, 0)

    with_client(hold, work)


def test_who_is_back_within_the_time_has_missed_nothing(hold: LocalHold) -> None:
    """Also if its connection broke in the middle, and others are read meanwhile."""

    async def work(client: HoldClient) -> None:
        _, output = await begin_followed(client, "seq 1 300000", limits=SMALL, window=16 * KIB)
        seen = Received()
        for rounds in range(1, 6):
            await read_more(output, seen, lambda seen, size=rounds * 200 * KIB: len(seen.out) >= size)
            hold.cut()
        await read_more(output, seen)
        assert (seen.out == numbers(300000), seen.gaps) == (True, 0)

    with_client(hold, work)


def test_another_client_goes_on_where_one_was_lost(hold: LocalHold) -> None:
    async def first(client: HoldClient) -> tuple[int, Received]:
        record, output = await begin_followed(client, "seq 1 300000", limits=SMALL, window=16 * KIB)
        seen = await read_more(output, Received(), lambda seen: len(seen.out) > 100 * KIB)
        hold.cut()
        return record.id, seen

    async def work() -> None:
        former = hold.client()
        task, seen = await first(former)
        await asyncio.sleep(1.0)
        client = hold.client()
        output = await client.tasks.follow(task, offset=seen.at, window=WINDOW)
        await read_more(output, seen)
        assert (seen.out == numbers(300000), seen.gaps) == (True, 0)
        await client.close()
        await former.close()

    asyncio.run(asyncio.wait_for(work(), 120))


@pytest.mark.parametrize("there", [True, False])
def test_who_takes_nothing_for_the_time_stops_nobody_any_more(hasty: LocalHold, there: bool) -> None:
    async def work(client: HoldClient) -> None:
        begun = time.monotonic()
        record, output = await begin_followed(client, "seq 1 300000", limits=SMALL, window=4 * KIB)
        if not there:
            client.tasks.close_output(output)
        record = await ended(client, record.id)
        assert time.monotonic() - begun > FOLLOW_SECONDS
        assert record.log_truncated
        everything = numbers(300000)
        if there:
            seen = await read_all(output)
            assert seen.gaps + len(seen.out) == len(everything)
            assert seen.out.endswith(everything[-100 * KIB :])

    with_client(hasty, work)


def test_a_fast_follower_is_not_slowed_by_one_that_has_it_all(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record, one = await begin_followed(client, "seq 1 100000")
        two = await client.tasks.follow(record.id, offset=0, window=WINDOW)
        first, second = await asyncio.gather(read_all(one), read_all(two))
        assert first.out == second.out == numbers(100000)

    with_client(hold, work)


def test_the_logs_of_all_tasks_are_bounded(hold: LocalHold) -> None:
    limits = TaskLimits(log_bytes=256 * KIB, all_log_bytes=600 * KIB)

    async def work(client: HoldClient) -> None:
        for _ in range(8):
            await ended(client, (await begin(client, "seq 1 100000", limits=limits)).id)
        assert log_bytes(hold) <= limits.all_log_bytes
        kept = await client.tasks.list()
        assert 1 <= len(kept) < 8
        last = kept[0]
        seen = await read_all(await client.tasks.follow(last.id, offset=0, window=WINDOW))
        assert seen.out == numbers(100000)[seen.gaps :]

    with_client(hold, work)


def test_a_killed_hold_leaves_the_log_and_an_interrupted_task(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        over = (await run(client, "seq 1 100000; exit 5")).end
        record, output = await begin_followed(client, "seq 1 50000; sleep 600")
        seen = await read_more(output, Received(), lambda seen: len(seen.out) == len(numbers(50000)))
        hold.process.kill()
        hold.process.wait()
        hold.start()
        found = {task.id: task for task in await client.tasks.list()}
        assert over
        interrupted = found[record.id]
        assert (interrupted.status, interrupted.exit_code, interrupted.error) == (
            TaskStatus.FAILED, None, "interrupted",
        )  # fmt: skip
        assert found[over.id] == over
        for task, wanted in ((record.id, numbers(50000)), (over.id, numbers(100000))):
            again = await read_all(await client.tasks.follow(task, offset=0, window=WINDOW))
            assert (again.out == wanted, again.gaps) == (True, 0)
        await read_more(output, seen)
        assert seen.end == interrupted
        later = await begin(client, "true")
        assert later.id > record.id

    with_client(hold, work)


@pytest.mark.parametrize("cut", [1, 5, 9, 40])
def test_an_incomplete_record_at_the_end_of_a_log_is_left_out(hold: LocalHold, cut: int) -> None:
    async def work(client: HoldClient) -> None:
        script = "for n in 1 2 3; do echo $n; sleep 0.1; echo $n >&2; sleep 0.1; done; sleep 600"
        record, output = await begin_followed(client, script)
        await read_more(output, Received(), lambda seen: len(seen.err) == 6)
        hold.process.kill()
        hold.process.wait()
        log = hold.tasks / f"l{record.id}-0"
        os.truncate(log, log.stat().st_size - cut)
        hold.start()
        await client.tasks.show(record.id)
        seen = await read_all(await client.tasks.follow(record.id, offset=0, window=WINDOW))
        assert b"1\n2\n3\n".startswith(seen.out)
        assert b"1\n2\n3\n".startswith(seen.err)
        assert seen.gaps == 0
        assert seen.end
        assert seen.end.error == "interrupted"
        # A client that has received what is gone is told the end, not that it asks for too much.
        again = await read_all(await client.tasks.follow(record.id, offset=12, window=WINDOW))
        assert (again.out, again.err, again.end) == (b"", b"", seen.end)

    with_client(hold, work)


def test_files_without_a_task_are_removed(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = (await run(client, "echo x")).end
        hold.process.kill()
        hold.process.wait()
        for name in ("r77", "l88-0", "l88-x", "new", "rx", f"l{record.id if record else 0}-5", "l1-2-3"):
            (hold.tasks / name).write_bytes(b"\1" * 50)
        hold.start()
        assert len(await client.tasks.list()) == 1
        assert record
        assert {path.name for path in hold.tasks.iterdir()} <= {
            "last-id", f"r{record.id}", f"l{record.id}-0", f"l{record.id}-5",
        }  # fmt: skip

    with_client(hold, work)


def test_a_full_disk_loses_log_and_never_the_task(hold_program: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "hold/tasks"
    tasks.mkdir(parents=True)
    with small_disk(tasks, 4) as disk:
        hold = LocalHold(hold_program, tmp_path / "hold")

        async def work(client: HoldClient) -> None:
            await client.list_terminals()
            disk.fill(leave_mb=3)
            record = await begin(client, f"seq 1 1000000; read go; echo {'e' * 5000}; exit 7")
            while (await client.tasks.show(record.id)).log_end < len(numbers(1000000)):
                await asyncio.sleep(0.05)
            assert (await client.tasks.show(record.id)).log_truncated
            # Records have no room either, but what is on the disk is there for all to read.
            seen = await read_all((await client.tasks.follow_last(record.id, 16 * MIB, WINDOW))[0])
            everything = numbers(1000000)
            assert all(everything[piece.offset : piece.end] == piece.data for piece in seen.pieces)
            assert len(seen.out) > MIB
            disk.make_room()
            await client.tasks.remove((await begin(client, "true")).id)
            await client.tasks.give_input(record.id, b"\n", ends=False)
            record = await ended(client, record.id)
            assert record.exit_code == 7
            seen = await read_all(await client.tasks.follow(record.id, offset=0, window=WINDOW))
            assert seen.gaps + len(seen.out) == record.log_end
            assert seen.out.endswith(b"e" * 5000 + b"\n")

        try:
            with_client(hold, work)
        finally:
            hold.close()


def test_a_stopped_reader_costs_no_memory_of_the_hold(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        before = hold.memory()
        for _ in range(20):
            await begin_followed(client, "seq 1 2000000", window=4 * KIB)
        await asyncio.sleep(2)
        assert hold.memory() - before < 2 * MIB

    with_client(hold, work)


def test_a_hold_that_stood_still_kills_what_is_late(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = await begin(client, "sleep 600", timeout=0.5)
        hold.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.0)
        hold.process.send_signal(signal.SIGCONT)
        assert (await ended(client, record.id)).timed_out

    with_client(hold, work)
