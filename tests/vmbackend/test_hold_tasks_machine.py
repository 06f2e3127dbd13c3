"""Tasks in real machines: they outlive connections and sleep; a machine that dies leaves their logs and ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.hold_tasks import Received, begin_followed, ended, options_of, read_all, read_more, start_of
from tests.vmbackend.test_guest_kit import Start, shell_image
from tests.vmbackend.test_guest_ssh import kit, start, wait_ready
from tests.vmbackend.test_hold_machine import again, in_guest
from vmbackend.driver import Boot
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.command import CommandStart
from vmbackend.guest.hold.task_record import TaskStatus
from vmbackend.guest.kit import Kit
from vmbackend.guest.ssh import SSHGuestSession

__all__ = ["kit", "shell_image", "start"]
pytestmark = pytest.mark.vm
COUNT = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.1; done"
LINES = b"".join(b"line %d\n" % number for number in range(1, 41))
WINDOW = 64 * 1024


def with_hold(machine: harness.Machine, work: Callable[[HoldClient], Awaitable[None]]) -> None:
    """A client of its own, as each process of the platform has one."""

    async def session(guest: SSHGuestSession) -> None:
        client = guest.open_hold()
        try:
            await again(client.tasks.list)
            await work(client)
        finally:
            await client.close()

    in_guest(machine, session)


def test_a_task_goes_on_through_lost_connections_and_sleep(start: Start, kit: Kit, shell_image: Path) -> None:
    machine = wait_ready(start())
    task, seen = 0, Received()

    async def begin(client: HoldClient) -> None:
        nonlocal task
        record, output = await begin_followed(client, COUNT)
        task = record.id
        await read_more(output, seen, lambda seen: b"line 3\n" in seen.out)

    with_hold(machine, begin)
    machine.sleep()
    woken = harness.wake(machine, kit, shell_image)

    async def go_on(client: HoldClient) -> None:
        await read_more(await client.tasks.follow(task, offset=seen.at, window=WINDOW), seen)
        assert (seen.out, seen.gaps) == (LINES, 0)
        assert seen.end
        assert (seen.end.status, seen.end.exit_code) == (TaskStatus.EXITED, 0)

    try:
        with_hold(woken, go_on)
    finally:
        woken.close()


def test_a_machine_that_dies_leaves_logs_ends_and_ids(tmp_path: Path, kit: Kit, shell_image: Path) -> None:
    folder, boot = tmp_path / "m", Boot(hostname="guest-1", env={"GREETING": "hello there"})
    machine = harness.start(folder, kit, shell_image, boot)
    over, running = 0, 0

    async def begin(client: HoldClient) -> None:
        nonlocal over, running
        words = ["sh", "-c", "echo $GREETING; pwd; echo $A >&2; exit 5"]
        asked = CommandStart(words, {"A": "1=2"}, "/tmp", "12:34")
        record, output = await client.tasks.start_followed(asked, options_of(None, {}), window=WINDOW)
        told = await read_all(output)
        assert (told.out, told.err) == (b"hello there\n/tmp\n", b"1=2\n")
        over = record.id
        record, output = await begin_followed(client, "echo begun; sleep 600")
        await read_more(output, Received(), lambda seen: seen.out == b"begun\n")
        running = record.id
        # Nothing of it is in the user's tree.
        found = await client.tasks.start_followed(
            start_of("/run/kit/bin/busybox find / -xdev -name 'last-id' 2> /dev/null"),
            options_of(None, {}),
            window=WINDOW,
        )
        assert (await read_all(found[1])).out == b""

    async def settle(guest: SSHGuestSession) -> None:
        await guest.sync()

    try:
        wait_ready(machine)
        with_hold(machine, begin)
        in_guest(machine, settle)
    finally:
        machine.close()
    again_started = harness.start(folder, kit, shell_image, boot)

    async def look(client: HoldClient) -> None:
        found = {task.id: task for task in await client.tasks.list()}
        assert (found[over].status, found[over].exit_code) == (TaskStatus.EXITED, 5)
        interrupted = found[running]
        assert (interrupted.status, interrupted.error) == (TaskStatus.FAILED, "interrupted")
        told = await read_all(await client.tasks.follow(running, offset=0, window=WINDOW))
        assert told.out == b"begun\n"
        record, _ = await begin_followed(client, "true")
        assert record.id > max(found)
        await ended(client, record.id)

    try:
        wait_ready(again_started)
        with_hold(again_started, look)
    finally:
        again_started.close()
