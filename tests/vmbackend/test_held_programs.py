"""Freezing of a guest's programs for its snapshot: with a simulated guest, and on machines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import held_programs, saved_state, snapshots
from vmbackend.libvirt.held_programs import freeze_programs, thaw_abandoned, thaw_programs
from vmbackend.libvirt.layers import Layers
from vmbackend.libvirt.record import MachineDir

from .conftest import Harness
from .snapshot_scenes import files_of, run
from .test_resync import guest


@pytest.fixture
def files(tmp_path: Path) -> MachineDir:
    made = MachineDir(tmp_path, "m1")
    made.create()
    return made


def test_each_request_has_a_number_that_its_answer_repeats(files: MachineDir) -> None:
    def answer(number: int, line: bytes) -> bytes:
        word = b"frozen" if line.startswith(b"freeze") else b"thawed"
        return b"failed 1 another one\n\n%s\n%s %d\n" % (word, word, number)

    with guest(files, answer) as received:
        freeze_programs(files)
        thaw_programs(files)
    assert [line.split()[0] for line in received] == [b"freeze", b"thaw"]
    assert int(received[0].split()[1]) < int(received[1].split()[1])


@pytest.mark.parametrize(
    "answer", [b"failed %d Timer expired\n", b"thawed %d\n", b"frozen 12%d\n", b"frozen\n", b"\xff%d\n", b"."]
)
@pytest.mark.timeout(30)
def test_another_answer_is_none(files: MachineDir, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(held_programs, "_SECONDS", 0.2)

    def reply(number: int, _line: bytes) -> bytes:
        return answer % number if b"%d" in answer else answer

    with guest(files, reply), pytest.raises(GuestUnreachable, match="does not stop its programs"):
        freeze_programs(files)


def test_the_machine_is_let_run_after_the_request_was_sent(files: MachineDir) -> None:
    seen: list[int] = []
    with guest(files, lambda number, _line: b"frozen %d\n" % number) as received:
        freeze_programs(files, lambda: seen.append(len(received)))
    assert seen, "it was let run"


def test_a_machine_without_a_process_is_unreachable_at_once(files: MachineDir) -> None:
    with pytest.raises(GuestUnreachable):
        freeze_programs(files)


def test_requests_that_no_guest_reads_do_not_fill_the_host(files: MachineDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU has the pipes open while its guest stands."""
    monkeypatch.setattr(held_programs, "_SECONDS", 0.0)
    ends = [os.open(f"{files.requests_pipe}.{way}", os.O_RDWR) for way in ("in", "out")]
    for _ in range(5000):
        with pytest.raises(GuestUnreachable):
            freeze_programs(files)
    for end in ends:
        os.close(end)


def test_programs_that_a_dead_process_froze_are_let_go_on_if_the_machine_runs(files: MachineDir) -> None:
    with guest(files, lambda number, line: line.split()[0] + b"d %d\n" % number) as received:
        thaw_abandoned(files, runs=True)
        for runs in (True, False):
            with suppress(GuestUnreachable):
                freeze_programs(files)
            thaw_abandoned(files, runs=runs)
            assert not files.held.exists()
    assert [line.split()[0] for line in received] == [b"freeze", b"thaw", b"freeze"]


def test_a_mark_without_its_guest_hinders_nothing(files: MachineDir) -> None:
    files.held.touch()
    thaw_abandoned(files, runs=True)
    assert not files.held.exists()


# Longer than any step of the count, so that a stand is told from it.
STAND_SECONDS = 1.0
# Prints the machine's own time while it runs, so that the longest step says how long it stood still.
COUNT = "(while read up _ < /proc/uptime; do echo $up; sleep 0.1; done) > /counted 2> /dev/null < /dev/null &"


def longest_stand(harness: Harness, machine: GuestAddress) -> float:
    times = [float(line) for line in run(harness, machine, "cat /counted").split()]
    return max(later - earlier for earlier, later in pairwise(times))


@pytest.mark.vm
@pytest.mark.parametrize("owner", [saved_state, snapshots], ids=["asleep", "snapshot"])
def test_the_next_driver_lets_programs_go_on_at_once(
    libvirt_harness: Harness, monkeypatch: pytest.MonkeyPatch, owner: Any
) -> None:
    """The process dies once they are frozen for a sleep, or before they go on after a snapshot."""
    machine = libvirt_harness.running_machine()
    driver, key = libvirt_harness.driver, machine.machine_id
    run(libvirt_harness, machine, COUNT)
    # A count that is frozen before its first line shows no stand.
    run(libvirt_harness, machine, "until [ -s /counted ]; do sleep 0.1; done")
    died: list[float] = []

    def die(*_: object) -> None:
        died.append(time.monotonic())
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(snapshots, "_thaw_if_frozen", lambda _files: None)
        patched.setattr(Layers, "settle", lambda *_: None)
        if owner is saved_state:
            patched.setattr(owner, "freeze_programs", after(freeze_programs, die))
            driver.sleep(key)
        else:
            patched.setattr(owner, "thaw_programs", die)
            driver.snapshot(key, "s1")
    assert files_of(libvirt_harness, key).held.exists()
    time.sleep(STAND_SECONDS)
    libvirt_harness.reopen_driver()
    opened = time.monotonic() - died[0]
    assert not files_of(libvirt_harness, key).held.exists()
    run(libvirt_harness, machine, "sleep 1")
    # Its own end of waiting would come 10 s after the freeze.
    assert STAND_SECONDS / 2 < longest_stand(libvirt_harness, machine) < opened + 2.0


def after(real: Callable[..., None], then: Callable[[], None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        real(*arguments)
        then()

    return call


@pytest.mark.vm
@pytest.mark.campaign
def test_programs_go_on_by_themselves_if_the_host_died_meanwhile(libvirt_harness: Harness) -> None:
    """A command waits with them, as its processes are in the same group."""
    machine = libvirt_harness.running_machine()
    files = files_of(libvirt_harness, machine.machine_id)
    freeze_programs(files)
    assert run(libvirt_harness, machine, "echo goes on") == "goes on"
    with pytest.raises(GuestUnreachable, match="could not be kept still"):
        thaw_programs(files)
