"""The fake driver's knobs, on which other tests rely."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vmbackend.driver import Boot, Event, EventKind, MachineSpec, MachineState, StopReason
from vmbackend.errors import BackendUnavailable, MachineNotFound, NoRoom
from vmbackend.fake import FakeDriver

SPEC = MachineSpec("m", "sha256:x", 1, 128, 64, "10.0.0.2", Boot("m"))


def wait_for(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_failure_is_raised_once_by_whichever_process_comes_next(tmp_path: Path):
    one, other = FakeDriver(tmp_path), FakeDriver(tmp_path)
    one.prepare(SPEC)
    one.fail_next("start", NoRoom("full"))
    with pytest.raises(NoRoom, match="full"):
        other.start("m")
    other.start("m")
    assert one.state("m") is MachineState.RUNNING


def test_a_first_preparation_that_fails_half_way_leaves_nothing(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.fail_next("prepare:network", BackendUnavailable("gone"))
    with pytest.raises(BackendUnavailable):
        driver.prepare(SPEC)
    assert driver.inventory().ids() == frozenset()


def test_a_process_that_dies_in_a_preparation_leaves_what_delete_removes(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.leave_behind("m", "directories", "taps", "firewall")
    assert driver.inventory().taps == {"m"}
    driver.delete("m")
    assert driver.inventory().ids() == frozenset()


def test_another_process_kills_and_the_open_one_hears_of_it(tmp_path: Path):
    events: list[Event] = []
    owner, other = FakeDriver(tmp_path), FakeDriver(tmp_path)
    owner.open(events.append)
    try:
        owner.prepare(SPEC)
        owner.start("m")
        other.kill("m")
        wait_for(lambda: Event("m", EventKind.STOPPED, StopReason.CRASHED) in events)
        owner.start("m")
        other.vanish("m")
        wait_for(lambda: Event("m", EventKind.STOPPED, StopReason.LOST) in events)
    finally:
        owner.close()
    assert owner.state("m") is MachineState.ABSENT
    assert owner.inventory().directories == {"m"}
    with pytest.raises(MachineNotFound):
        owner.start("m")


def test_a_stubborn_guest_is_ended_hard_and_a_sleeping_one_wakes(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.prepare(SPEC)
    driver.make_stubborn("m")
    driver.start("m")
    assert driver.shutdown("m", 1.0) is False
    driver.start("m")
    driver.put_to_sleep("m")
    assert driver.state("m") is MachineState.ASLEEP
    driver.start("m")
    assert driver.state("m") is MachineState.RUNNING
