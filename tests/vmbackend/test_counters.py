"""Memory and disk of a fork are of one instant, to the step of a program that changes both as fast as it can.

No step is made in a copy before it has its own identity. Other processes want the host's processors, too: writes of a
guest are missed, if any, while it must wait for one. ROUNDS in the environment says how many forks are made.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.run_extent import number_of
from vmbackend.copies import AfterSnapshot
from vmbackend.driver import MachineState
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.libvirt import convergence, snapshots

from .conftest import Harness
from .snapshot_scenes import load_fork, run

pytestmark = pytest.mark.vm
ROUNDS = number_of("ROUNDS", 3, 100)
SOURCE = Path(__file__).with_name("counter_main.c")
BEGIN = """
chmod 755 /counter
/counter {file} < /dev/null > /dev/shm/report 2> /dev/shm/begun &
until [ -s /dev/shm/begun ]; do sleep 0.05; done
echo $!
"""
REPORT = "until [ -s /dev/shm/report ]; do sleep 0.05; done; cat /dev/shm/report"


@pytest.fixture
def busy_host() -> Iterator[None]:
    command = ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", "while :; do :; done"]
    processes = [subprocess.Popen(command) for _ in range(3 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def put_counter(harness: Harness, address: GuestAddress, folder: Path) -> None:
    program = folder / "counter"
    subprocess.run(["musl-gcc", "-static", "-O2", "-Wall", "-Werror", "-o", str(program), str(SOURCE)], check=True)

    async def content() -> AsyncIterator[bytes]:
        yield program.read_bytes()

    async def write(session: GuestSession) -> None:
        await session.write("/counter", content())

    harness.pool.call(address, write, 150)


def counted(harness: Harness, address: GuestAddress) -> int:
    """The number in memory of a counter that has ended."""
    memory, file, found = run(harness, address, REPORT).split(" ", 2)
    assert found == "right", (memory, file, found)
    assert memory == file
    return int(memory)


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("busy_host")
def test_a_counter_in_memory_and_one_in_a_file_agree_in_each_fork(harness: Harness, tmp_path: Path) -> None:
    parent, last = harness.running_machine(), 0
    put_counter(harness, parent, tmp_path)
    pid = run(harness, parent, BEGIN.format(file="/ring"))
    for number in range(ROUNDS):
        time.sleep(random.uniform(0.1, 1))
        harness.driver.snapshot(parent.machine_id, f"s{number}")
        fork = load_fork(harness, f"s{number}")
        now = counted(harness, fork)
        assert now > last
        last = now
        harness.driver.delete(fork.machine_id)
        harness.driver.remove_snapshot(f"s{number}")
    run(harness, parent, f"kill {pid}")
    assert counted(harness, parent) > last + ROUNDS


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (MachineState.RUNNING, AfterSnapshot.RESUME),
        (MachineState.RUNNING, AfterSnapshot.PAUSED),
        (MachineState.PAUSED, AfterSnapshot.RESUME),
        (MachineState.ASLEEP, AfterSnapshot.RESUME),
    ],
)
def test_no_program_runs_in_a_copy_before_it_is_one_of_its_own(
    harness: Harness, tmp_path: Path, state: MachineState, after: AfterSnapshot
) -> None:
    parent, driver = harness.running_machine(), harness.driver
    put_counter(harness, parent, tmp_path)
    pid = run(harness, parent, BEGIN.format(file=""))
    if state is MachineState.PAUSED:
        driver.pause(parent.machine_id)
    elif state is MachineState.ASLEEP:
        driver.sleep(parent.machine_id)
    driver.snapshot(parent.machine_id, "s1", after=after)
    numbers = {run(harness, load_fork(harness, "s1"), REPORT) for _ in range(3)}
    assert len(numbers) == 1
    if driver.state(parent.machine_id) is not MachineState.RUNNING:
        driver.start(parent.machine_id)
        driver.resume(parent.machine_id)
        driver.resync_guest(parent.machine_id)
    run(harness, parent, f"kill {pid}")
    assert int(run(harness, parent, REPORT)) > int(numbers.pop()), "the parent goes on"
    driver.remove_snapshot("s1")


@pytest.mark.parametrize("case", ["small", "large", "too late"])
def test_none_runs_either_if_the_parent_runs_while_its_memory_is_saved(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """As with KVM. `too late`: the snapshot is made again, with the machine standing still."""
    monkeypatch.setattr(snapshots, "_tracks_changes", lambda _target: True)
    if case != "small":
        monkeypatch.setattr(convergence, "_SMALL_MB", 0)
    if case == "too late":
        monkeypatch.setattr(convergence, "_NEAR_BYTES", 0)
    test_no_program_runs_in_a_copy_before_it_is_one_of_its_own(
        harness, tmp_path, MachineState.RUNNING, AfterSnapshot.RESUME
    )


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness
