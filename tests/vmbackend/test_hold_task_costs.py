"""Costs of tasks for the hold while they run, and after their ends; they are no burden for terminals."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.vmbackend.hold_factory import LocalHold, read_until
from tests.vmbackend.hold_tasks import KIB, MIB, begin, begin_followed, ended, read_all, with_client
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.test_hold_commands import written
from vmbackend.errors import BackendError
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import InputFull
from vmbackend.guest.hold.tasks import TaskLimits

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
MOST = 96  # tasks that a hold lets run
MANY = TaskLimits(running=MOST, ended=4000)


def descriptors(hold: LocalHold) -> int:
    return len([*Path(f"/proc/{hold.process.pid}/fd").iterdir()])


def test_a_task_at_rest_costs_little(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        await client.tasks.list()
        before, opened = hold.memory(), descriptors(hold)
        for _ in range(MOST):
            await begin(client, ["sleep", "600"], limits=MANY)
        await asyncio.sleep(0.5)
        assert (hold.memory() - before) / MOST < 32 * KIB
        assert (descriptors(hold) - opened) / MOST <= 6
        with pytest.raises(BackendError):
            await begin(client, "true", limits=MANY)
        for record in await client.tasks.list():
            await client.tasks.remove(record.id)
        assert descriptors(hold) == opened

    with_client(hold, work)


def test_two_thousand_ended_tasks_cost_little_and_leave_no_descriptor(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        await ended(client, (await begin(client, "echo x", limits=MANY)).id)
        before, opened = hold.memory(), descriptors(hold)
        for _ in range(2000):
            last = (await begin(client, ["echo", "x"], limits=MANY)).id
            if last % 50 == 0:
                await ended(client, last)
        await ended(client, last)
        assert len(await client.tasks.list()) == 2001
        assert (hold.memory() - before) / 2000 < 4 * KIB
        while descriptors(hold) > opened:
            await asyncio.sleep(0.05)
        for record in await client.tasks.list():
            await client.tasks.remove(record.id)
        assert hold.memory() - before < 2 * MIB
        assert [path.name for path in hold.tasks.iterdir()] == ["last-id"]

    with_client(hold, work)


def test_a_task_without_outputs_runs_on_and_ends(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(client, "echo one; exec >&- 2>&- <&-; sleep 1; exit 5")
        begun = time.monotonic()
        seen = await read_all(output)
        assert seen.end
        assert (seen.out, seen.end.exit_code) == (b"one\n", 5)
        assert time.monotonic() - begun > 0.8
        assert record.id == seen.end.id

    with_client(hold, work)


def test_an_output_that_the_background_holds_does_not_delay_the_end(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        script = f"yes & (while :; do echo more; done) & sleep 600 & echo $! > {tmp_path}/child"
        _, output = await begin_followed(client, script)
        seen = await asyncio.wait_for(read_all(output), 20)
        assert seen.end
        assert seen.end.exit_code == 0
        child = int(await written(tmp_path / "child"))
        assert is_running(child)
        os.kill(child, 9)

    with_client(hold, work)


async def give(client: HoldClient, task: int) -> None:
    """Input, as fast as it is taken or refused."""
    while True:
        with suppress(InputFull):
            await client.tasks.give_input(task, b"x" * 1000, ends=False)


async def start_and_remove(client: HoldClient) -> None:
    while True:
        await client.tasks.remove((await begin(client, ["true"])).id)


def test_floods_of_tasks_and_input_leave_terminals_their_turn(hold: LocalHold) -> None:
    """Tasks that write and start others as fast as they can, one that is given input and reads none, and thousands of
    starts and removals.
    """

    async def work(client: HoldClient) -> None:
        other = hold.client()
        terminal = await other.create_terminal(["cat"])
        for _ in range(4):
            await begin(client, "while :; do echo flood; done", timeout=30)
        await begin(client, "while :; do (true) & done", timeout=30)
        deaf = await begin(client, "sleep 600")

        doing = [asyncio.ensure_future(start_and_remove(client)) for _ in range(2)]
        doing.append(asyncio.ensure_future(give(client, deaf.id)))
        longest, end, number = 0.0, time.monotonic() + 4, 0
        while time.monotonic() < end:
            number, begun = number + 1, time.monotonic()
            await terminal.write(b"key %d.\n" % number)
            await read_until(terminal, b"key %d.\r\n" % number)
            longest = max(longest, time.monotonic() - begun)
        assert not [each for each in doing if each.done()]
        for each in doing:
            each.cancel()
        await asyncio.wait(doing)
        assert longest < 2
        for record in await client.tasks.list():
            await client.tasks.remove(record.id)
        await other.close()

    with_client(hold, work)
