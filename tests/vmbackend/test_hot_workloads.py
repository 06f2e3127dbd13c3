"""Workloads that are added, changed, stopped and removed while a real machine runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, run, shell_image, wait_for_output
from tests.vmbackend.test_guest_ssh import call_session, kit, start, wait_ready
from vmbackend.driver import Workload, WorkloadRestart
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest import workloads as guest
from vmbackend.guest.session import GuestSession

__all__ = ["kit", "shell_image", "start"]
pytestmark = pytest.mark.vm
NEVER = WorkloadRestart.NEVER
# Exits with 0 where a process has these words.
RUNS = "for d in /proc/[0-9]*; do case $(cat $d/cmdline 2>/dev/null) in *{}*) exit 0;; esac; done; exit 1"


def script(name: str, text: str, **options: Any) -> Workload:
    return Workload(name, ("sh", "-c", text), **options)


def call(machine: harness.Machine, fn: Callable[..., Awaitable[None]], what: Workload | str) -> None:
    call_session(machine, lambda session: fn(session, what))


def states(machine: harness.Machine) -> dict[str, guest.WorkloadState]:
    async def listed(session: GuestSession) -> object:
        return await guest.list_workloads(session)

    found: Any = call_session(machine, listed)
    return {each.name: each for each in found}


def wait_for_state(machine: harness.Machine, name: str, state: str) -> guest.WorkloadState:
    found: guest.WorkloadState | None = None

    async def look(session: GuestSession) -> None:
        nonlocal found
        # Of one that has just started the time is known a moment later.
        while found is None or found.state != state or (state == "running" and found.started_at is None):
            found = {each.name: each for each in await guest.list_workloads(session)}.get(name)
            await asyncio.sleep(0.1)

    try:
        call_session(machine, look)
    except TimeoutError:
        raise AssertionError(f"{name} is {found}") from None
    assert found is not None
    return found


def test_workloads_change_while_the_machine_runs_and_one_that_does_not_fit_changes_nothing(start: Start) -> None:
    kept = script("kept", "exec sleep 999")
    short = script("short", "exit 3", restart=NEVER)
    machine = wait_ready(start(workloads=(kept, short), env={"LARGE": "x" * 100_000}))
    before = wait_for_state(machine, "kept", "running")
    ended = wait_for_state(machine, "short", "exited")
    assert (ended.exit_code, ended.pid, ended.restarts) == (3, None, 0)
    assert before.started_at is not None
    large = script("large", "exec sleep 1", env={"MORE": "x" * 120_000, "AND": "y" * 60_000})
    with pytest.raises(GuestCommandInvalid, match="larger than"):
        call(machine, guest.put_workload, large)
    assert states(machine) == {"kept": before, "short": ended}
    added = script("web", "echo up $A; exec sleep 998", env={"A": "one"}, user="dev", working_dir="/tmp")
    call(machine, guest.put_workload, added)
    first = wait_for_state(machine, "web", "running")
    wait_for_output(machine, harness.log_text("web"), "up one\n")
    # The same once more changes nothing, and neither does it change another one.
    call(machine, guest.put_workload, added)
    call(machine, guest.put_workload, kept)
    assert states(machine)["web"] == first
    assert states(machine)["kept"] == before
    call(
        machine, guest.put_workload, script("web", "echo up $A; exec sleep 997", env={"A": "two"}, log_path="/root/web")
    )
    wait_for_output(machine, "cat /root/web", "up two\n")
    assert wait_for_state(machine, "web", "running").pid != first.pid
    for _ in range(2):
        call(machine, guest.remove_workload, "web")
    assert set(states(machine)) == {"kept", "short"}
    assert run(machine, "test -e /run/kit/service/w-web || test -e /run/kit/service/.w-web")[0][0] == 1
    call(machine, guest.put_workload, added)
    wait_for_state(machine, "web", "running")
    assert states(machine)["kept"] == before
    machine.qmp("system_powerdown")
    assert "programs" not in machine.wait_off()


def test_a_workload_is_stopped_with_its_children_and_started_again(start: Start) -> None:
    group = "trap 'exit 7' TERM; sleep 12345 & while :; do sleep 0.1; done"
    again, deaf = script("again", "exit 1", restart_delay=600), script("deaf", "trap '' TERM; exec sleep 999")
    machine = wait_ready(start(workloads=(script("group", group), again, deaf)))
    wait_for_state(machine, "group", "running")
    assert run(machine, RUNS.format("1234[5]"))[0][0] == 0
    waiting = wait_for_state(machine, "again", "restarting")
    assert (waiting.exit_code, waiting.restarts) == (1, 1)
    call(machine, guest.stop_workload, "group")
    stopped = states(machine)["group"]
    assert (stopped.state, stopped.pid, stopped.exit_code) == ("stopped", None, 7)
    assert run(machine, RUNS.format("1234[5]"))[0][0] == 1
    begun = time.monotonic()
    call(machine, guest.stop_workload, "again")
    assert states(machine)["again"].state == "stopped"
    call(machine, guest.stop_workload, "deaf")
    assert states(machine)["deaf"].exit_code == 137
    assert time.monotonic() - begun > 5  # the time that a program has to end
    for name in ("group", "again"):
        for _ in range(2):
            call(machine, guest.start_workload, name)
    assert wait_for_state(machine, "group", "running").exit_code is None
    assert wait_for_state(machine, "again", "restarting").restarts == 1
    with pytest.raises(GuestCommandInvalid, match="no such workload"):
        call(machine, guest.start_workload, "other")
    with pytest.raises(GuestCommandInvalid, match="not a name"):
        call(machine, guest.stop_workload, "../main")
