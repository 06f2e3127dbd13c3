"""Tasks of the guest's hold: outputs, ends, deadlines, input, lists, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.vmbackend.hold_factory import LocalHold, needs_cgroups
from tests.vmbackend.hold_tasks import (
    KIB,
    MIB,
    WINDOW,
    begin,
    begin_followed,
    ended,
    read_all,
    run,
    with_client,
)
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.test_command_cgroups import wait_gone
from tests.vmbackend.test_hold_commands import written
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import InputFull, TaskNotFound, TerminalEnded, TerminalLimit
from vmbackend.guest.hold.task_record import TaskStatus
from vmbackend.guest.hold.tasks import TaskLimits

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")


def test_a_task_gives_both_outputs_and_its_end(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        seen = await run(client, "echo one; echo two >&2; exit 3")
        assert (seen.out, seen.err, seen.gaps) == (b"one\n", b"two\n", 0)
        record = seen.end
        assert record is not None
        assert (record.status, record.exit_code, record.timed_out, record.error) == (TaskStatus.EXITED, 3, False, "")
        assert record.command == ("sh", "-c", "echo one; echo two >&2; exit 3")
        assert record.created_at
        assert record.started_at
        assert record.exited_at
        assert record.created_at <= record.started_at <= record.exited_at
        assert (record.log_start, record.log_end) == (0, 8)

    with_client(hold, work)


def test_a_large_output_comes_whole_and_in_order(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        seen = await run(client, "seq 1 1000000")
        assert seen.out == b"".join(b"%d\n" % line for line in range(1, 1000001))
        assert seen.gaps == 0

    with_client(hold, work)


def test_outputs_that_alternate_keep_their_order(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(
            client, "for n in 1 2 3 4 5; do echo $n; sleep 0.05; echo $n >&2; sleep 0.05; done"
        )
        order = []
        while not hasattr(piece := await output.read(), "status"):
            order.append((piece.output, piece.data))
        assert order == [(which, b"%d\n" % n) for n in range(1, 6) for which in (1, 2)]
        assert record.id >= 1

    with_client(hold, work)


@pytest.mark.parametrize(
    ("script", "code"), [("kill -9 $$", 137), ("kill -15 $$", 143), ("exit 255", 255), ("exit 124", 124)]
)
def test_codes_and_signals_are_ends_of_an_exited_task(hold: LocalHold, script: str, code: int) -> None:
    async def work(client: HoldClient) -> None:
        record = (await run(client, script)).end
        assert record is not None
        assert (record.status, record.exit_code, record.timed_out) == (TaskStatus.EXITED, code, False)

    with_client(hold, work)


@pytest.mark.parametrize("words", [["/no/such/program"], ["/etc/passwd"], ["/"]])
def test_a_program_that_cannot_start_is_a_failed_task(hold: LocalHold, words: list[str]) -> None:
    async def work(client: HoldClient) -> None:
        record = (await run(client, words)).end
        assert record is not None
        assert (record.status, record.exit_code) == (TaskStatus.FAILED, 127 if "no" in words[0] else 126)
        assert words[0] in record.error

    with_client(hold, work)


@needs_cgroups
def test_a_deadline_kills_all_that_the_task_started(hold: LocalHold, tmp_path: Path) -> None:
    script = f"trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP; echo $$ > {tmp_path}/pid; sleep 600' & sleep 600"

    async def work(client: HoldClient) -> None:
        begun = time.monotonic()
        record = (await run(client, script, timeout=1.5)).end
        assert record is not None
        assert (record.status, record.exit_code, record.timed_out) == (TaskStatus.FAILED, 124, True)
        assert time.monotonic() - begun > 1.4
        wait_gone(int(await written(tmp_path / "pid")))

    with_client(hold, work)


@needs_cgroups
def test_a_removed_task_is_gone_with_all_that_it_started(hold: LocalHold, tmp_path: Path) -> None:
    script = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; sleep 600' & echo here; sleep 600"

    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(client, script)
        child = int(await written(tmp_path / "pid"))
        removed = await client.tasks.remove(record.id)
        assert (removed.status, removed.exit_code) == (TaskStatus.EXITED, 137)
        seen = await read_all(output)
        assert seen.end is not None
        assert seen.out in (b"here\n", b"")
        wait_gone(child)
        with pytest.raises(TaskNotFound):
            await client.tasks.show(record.id)
        assert [path.name for path in hold.tasks.iterdir()] == ["last-id"]

    with_client(hold, work)


def test_what_a_task_leaves_in_the_background_lives_on(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        seen = await run(client, f"sleep 600 & echo $! > {tmp_path}/pid; echo done")
        assert (seen.out, seen.end and seen.end.exit_code) == (b"done\n", 0)
        child = int(await written(tmp_path / "pid"))
        assert is_running(child)
        os.kill(child, 9)

    with_client(hold, work)


def test_input_reaches_the_program_and_ends(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(client, "cat")
        await client.tasks.give_input(record.id, b"one\n", ends=False)
        await client.tasks.give_input(record.id, bytes(300 * KIB), ends=False)
        await client.tasks.give_input(record.id, b"two\n", ends=True)
        with pytest.raises(TerminalEnded):
            await client.tasks.give_input(record.id, b"three", ends=False)
        seen = await read_all(output)
        assert seen.out == b"one\n" + bytes(300 * KIB) + b"two\n"
        with pytest.raises(TerminalEnded):
            await client.tasks.give_input(record.id, b"four", ends=False)

    with_client(hold, work)


def test_input_that_nobody_reads_is_taken_whole_or_not_at_all(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(client, "sleep 1; cat | wc -c")
        await client.tasks.give_input(record.id, bytes(MIB), ends=False)
        with pytest.raises(InputFull):
            await client.tasks.give_input(record.id, bytes(512 * KIB), ends=False)
        await asyncio.sleep(1.5)
        await client.tasks.give_input(record.id, b"", ends=True)
        assert int((await read_all(output)).out) == MIB

    with_client(hold, work)


def test_the_list_has_the_newest_first_over_any_number_of_answers(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        for number in range(30):
            await begin(client, ["true", str(number), "x" * 5000])
        found = await client.tasks.list()
        assert [task.command[1] for task in found] == [str(number) for number in reversed(range(30))]
        assert all(sum(map(len, task.command)) == 4096 for task in found)

    with_client(hold, work)


def test_more_than_may_run_are_refused(hold: LocalHold) -> None:
    limits = TaskLimits(running=3)

    async def work(client: HoldClient) -> None:
        running = [await begin(client, "sleep 600", limits=limits) for _ in range(3)]
        with pytest.raises(TerminalLimit):
            await begin(client, "true", limits=limits)
        await client.tasks.remove(running[0].id)
        await begin(client, "true", limits=limits)

    with_client(hold, work)


def test_the_oldest_of_too_many_ended_tasks_go(hold: LocalHold) -> None:
    limits = TaskLimits(ended=5)

    async def work(client: HoldClient) -> None:
        ids = [(await run(client, f"echo {number}", limits=limits)).end for number in range(9)]
        kept = {task.id for task in await client.tasks.list()}
        assert kept == {record.id for record in ids[-5:] if record}
        assert len([*hold.tasks.iterdir()]) == 11

    with_client(hold, work)


def test_an_ended_task_is_forgotten_after_its_time(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = (await run(client, "echo x", ttl=1)).end
        kept = (await run(client, "echo x", ttl=600)).end
        assert record
        assert kept
        while len(await client.tasks.list()) > 1:
            await asyncio.sleep(0.05)
        assert [task.id for task in await client.tasks.list()] == [kept.id]
        with pytest.raises(TaskNotFound):
            await client.tasks.follow(record.id, offset=0, window=WINDOW)

    with_client(hold, work)


def test_a_log_that_is_not_kept_goes_with_the_end(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        seen = await run(client, "seq 1 100000", keep_log=False)
        assert seen.gaps == 0
        assert seen.end
        deadline = time.monotonic() + 30
        while [*hold.tasks.glob("l[0-9]*")]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        record = await client.tasks.show(seen.end.id)
        assert record.exit_code == 0

    with_client(hold, work)


def test_the_last_bytes_of_each_output_are_told_from_all(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = await begin(client, "seq 1 20000; seq 1 20000 >&2; echo end")
        await ended(client, record.id)
        everything = b"".join(b"%d\n" % line for line in range(1, 20001))
        output, is_cut = await client.tasks.follow_last(record.id, 1000, WINDOW)
        seen = await read_all(output)
        assert (seen.out, seen.err) == ((everything + b"end\n")[-1000:], everything[-1000:])
        assert is_cut
        output, is_cut = await client.tasks.follow_last(record.id, MIB, WINDOW)
        seen = await read_all(output)
        assert (seen.out, seen.err, is_cut) == (everything + b"end\n", everything, False)

    with_client(hold, work)


def test_what_there_is_of_a_running_task_can_be_read(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = await begin(client, "echo begun; sleep 600")
        while (await client.tasks.show(record.id)).log_end < 6:
            await asyncio.sleep(0.02)
        output, _ = await client.tasks.follow_last(record.id, MIB, WINDOW)
        seen = await read_all(output)
        assert seen.end
        assert (seen.out, seen.end.status) == (b"begun\n", TaskStatus.RUNNING)

    with_client(hold, work)


def test_an_offset_that_was_not_written_is_refused(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = (await run(client, "echo x")).end
        assert record
        with pytest.raises(GuestCommandInvalid):
            await client.tasks.follow(record.id, offset=3, window=WINDOW)
        assert (await read_all(await client.tasks.follow(record.id, offset=1, window=WINDOW))).out == b"\n"

    with_client(hold, work)
