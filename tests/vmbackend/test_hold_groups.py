"""`guest hold`: the groups of what has ended are removed whatever comes after it, those of what runs are left alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, needs_cgroups
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.test_command_cgroups import GROUPS
from tests.vmbackend.test_hold_commands import command, groups_of, no_groups, with_client
from vmbackend.guest.hold.client import HoldClient

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@needs_cgroups
def test_an_empty_group_of_a_program_that_runs_is_its_own(hold: LocalHold) -> None:
    """It may be about to fill it; it goes with the program."""
    folder = "cd /sys/fs/cgroup/kit || cd /sys/fs/cgroup/unified/kit"
    script = f"{folder}; mkdir $(sed -n 's,^0::.*/,,p' /proc/self/cgroup)/own; sleep 1000 & echo $!"

    async def work(client: HoldClient) -> None:
        pid = int((await command(client, script)).out)
        (group,) = groups_of(hold)
        for _ in range(5):  # each end leads to a sweep
            await command(client, "true")
            await asyncio.sleep(0.1)
        assert (group / "own").is_dir()
        os.kill(pid, 9)
        await no_groups(hold)

    with_client(hold, work)


@needs_cgroups
def test_the_group_of_what_guest_run_left_is_removed_without_another_command(hold: LocalHold) -> None:
    done = subprocess.run(
        [hold.helper, "run", "--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"], capture_output=True, timeout=60
    )
    pid = int(done.stdout)
    group = Path(f"/proc/{pid}/cgroup").read_text().strip().splitlines()[-1].rpartition("/")[2]
    places = [base / group for base in GROUPS if (base / group).exists()]

    async def work(client: HoldClient) -> None:
        await command(client, "true")
        assert [place for place in places if place.exists()]
        os.kill(pid, 9)
        await until(lambda: not any(place.exists() for place in places))

    with_client(hold, work)


@needs_cgroups
def test_the_group_of_a_closed_terminal_is_removed_without_another_one(hold: LocalHold) -> None:
    def groups() -> list[Path]:
        return [path for base in GROUPS for path in base.glob(f"t-{hold.process.pid}-*")]

    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal(["sh", "-c", "setsid sleep 1000 & trap '' HUP TERM; sleep 1000"])
        assert groups()
        await terminal.close()
        await until(lambda: not groups())

    with_client(hold, work)
