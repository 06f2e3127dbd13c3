"""Guests are asked for their disks seldom, and none of them can hold up the others or the sampler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vmbackend.errors import GuestUnreachable, InvalidMachineState
from vmbackend.samples import GuestDisk
from workspaces.host.metering import disks as asking
from workspaces.host.metering.disks import (
    EVERY_SECONDS,
    FIRST_SECONDS,
    SILENT_SECONDS,
    SILENT_THREADS,
    THREADS,
    UNRESPONSIVE_SECONDS,
    DiskMeter,
)


class Guests:
    """Stands for the driver: `silent` guests hold their asker until they are let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.silent: set[str] = set()
        self.let_go = threading.Event()

    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        self.asked.append(machine_id)
        if machine_id in self.silent:
            self.let_go.wait(20)
            raise GuestUnreachable("silent")
        return GuestDisk(1, 2)


@pytest.fixture
def guests() -> Iterator[Guests]:
    made = Guests()
    yield made
    made.let_go.set()


@pytest.fixture
def disks(guests: Guests) -> Iterator[DiskMeter]:
    made = DiskMeter(guests)  # type: ignore[arg-type]
    yield made
    guests.let_go.set()
    made._pool.shutdown()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def settle(disks: DiskMeter) -> None:
    until(lambda: not disks._in_progress)


def test_each_guest_is_asked_once_in_a_while(disks: DiskMeter, guests: Guests) -> None:
    disks.machines = ["one", "other"]
    now = time.monotonic()
    for second in range(3):
        disks.query_due(now + second)
        settle(disks)
    assert sorted(guests.asked) == ["one", "other"]
    assert disks.latest == {"one": GuestDisk(1, 2), "other": GuestDisk(1, 2)}
    disks.query_due(now + EVERY_SECONDS + 5)
    settle(disks)
    assert len(guests.asked) == 4


def test_silent_guests_do_not_delay_reads(disks: DiskMeter, guests: Guests) -> None:
    guests.silent = {f"silent{n}" for n in range(THREADS - 1)}
    disks.machines = [*guests.silent, "honest"]
    disks.query_due(time.monotonic())
    until(lambda: "honest" in disks.latest)
    assert len(disks._in_progress) == THREADS - 1
    disks.query_due(time.monotonic() + 1000)  # who is being asked is not asked again
    settle_honest = lambda: guests.asked.count("honest") == 2  # noqa: E731
    until(settle_honest)
    assert all(guests.asked.count(name) == 1 for name in guests.silent)


def test_a_guest_that_does_not_answer_is_asked_less_and_less(disks: DiskMeter, guests: Guests) -> None:
    guests.silent = {"silent"}
    guests.let_go.set()
    disks.machines = ["silent"]
    disks.latest["silent"] = GuestDisk(1, 2)
    pauses = []
    for _ in range(12):
        disks.query_due(time.monotonic() + 10_000)
        settle(disks)
        pauses.append(disks._interval["silent"])
    assert pauses == sorted(pauses)
    assert pauses[:2] == [2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses[-1] == SILENT_SECONDS
    assert "silent" not in disks.latest


def test_a_machine_that_stands_still_is_asked_again_soon(
    disks: DiskMeter, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def paused(machine_id: str, timeout: float) -> GuestDisk:
        raise InvalidMachineState("It does not run.")

    disks.latest["one"] = GuestDisk(1, 2)
    disks.machines = ["one"]
    monkeypatch.setattr(guests, "guest_disk", paused)
    for _ in range(5):
        disks.query_due(time.monotonic() + 10_000)
        settle(disks)
    assert disks._interval["one"] == EVERY_SECONDS
    assert disks.latest == {"one": GuestDisk(1, 2)}


def test_what_is_not_wanted_any_more_is_forgotten(disks: DiskMeter) -> None:
    disks.machines = ["one"]
    disks.query_due(time.monotonic())
    settle(disks)
    disks.machines = []
    disks.query_due(time.monotonic())
    assert (disks.latest, disks._due, disks._interval) == ({}, {}, {})


def test_a_fault_of_ours_ends_no_thread(disks: DiskMeter, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(machine_id: str, timeout: float) -> GuestDisk:
        raise ZeroDivisionError

    monkeypatch.setattr(guests, "guest_disk", broken)
    disks.machines = ["one"]
    disks.query_due(time.monotonic())
    settle(disks)
    assert disks._interval["one"] == asking.MAX_SECONDS


def test_silent_guests_do_not_take_the_threads_of_those_that_answer(disks: DiskMeter, guests: Guests) -> None:
    guests.silent = {f"silent{n}" for n in range(10)}
    guests.let_go.set()
    disks.machines = list(guests.silent)
    disks.query_due(time.monotonic())
    settle(disks)
    guests.let_go.clear()
    disks.machines = [*guests.silent, *(f"honest{n}" for n in range(20))]
    disks.query_due(time.monotonic() + 1000)
    until(lambda: len(disks.latest) == 20)
    assert len(disks._in_progress) == 10
    assert len([name for name in guests.asked if name in guests.silent]) == 10 + SILENT_THREADS


def test_a_guest_that_has_not_answered_for_a_minute_is_reported_and_again_when_it_answers(
    disks: DiskMeter, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(asking.time, "time", lambda: now[0])
    guests.let_go.set()
    disks.machines = ["one"]

    def ask(at: float) -> list[tuple[str, float | None]]:
        now[0] = at
        disks.reports.clear()
        disks.query_due(time.monotonic() + 10_000)
        settle(disks)
        return list(disks.reports)

    assert ask(1000.0) == [("one", None)]
    assert ask(1001.0) == []
    guests.silent = {"one"}
    assert ask(1002.0) == []
    assert ask(1002.0 + UNRESPONSIVE_SECONDS - 1) == []
    assert ask(1002.0 + UNRESPONSIVE_SECONDS) == [("one", 1002.0)]
    assert ask(2000.0) == [("one", 1002.0)]
    guests.silent = set()
    assert ask(3000.0) == [("one", None)]
    assert ask(3001.0) == []
