"""The failure injection of the fake driver, on which other tests rely."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from vmbackend.backend import open_hold
from vmbackend.driver import Boot, Event, EventKind, MachineSpec, MachineState, StopReason, Workload, WorkloadRestart
from vmbackend.errors import (
    BackendUnavailable,
    CapacityExceeded,
    GuestUnreachable,
    MachineNotFound,
    SavedMemoryUnusable,
)
from vmbackend.fake.driver import FakeDriver
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.hold import HoldSettings, HoldUnsupported
from vmbackend.guest.session import ExecResult, GuestAddress
from vmbackend.peers import Peer

SPEC = MachineSpec("m", "sha256:x", 1, 128, 64, "10.0.0.2", Boot("m"))


def wait_for(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_injected_failure_is_raised_once_in_any_process(tmp_path: Path):
    one, other = FakeDriver(tmp_path), FakeDriver(tmp_path)
    one.prepare(SPEC)
    one.fail_next("start", CapacityExceeded("full"))
    with pytest.raises(CapacityExceeded, match="full"):
        other.start("m")
    other.start("m")
    assert one.state("m") is MachineState.RUNNING


def test_a_first_prepare_that_fails_half_way_leaves_nothing_behind(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.fail_next("prepare:network", BackendUnavailable("gone"))
    with pytest.raises(BackendUnavailable):
        driver.prepare(SPEC)
    assert driver.inventory().ids() == frozenset()


def test_delete_removes_orphans_of_a_crashed_prepare(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.create_orphans("m", "directories", "taps", "firewall", "saved")
    assert driver.inventory().taps == driver.inventory().saved == {"m"}
    driver.delete("m")
    assert driver.inventory().ids() == frozenset()


def test_changes_by_another_process_are_reported_to_the_open_driver(tmp_path: Path):
    events: list[Event] = []
    owner, other = FakeDriver(tmp_path), FakeDriver(tmp_path)
    owner.open(events.append)
    try:
        owner.prepare(SPEC)
        owner.start("m")
        other.kill("m")
        wait_for(lambda: Event("m", EventKind.STOPPED, StopReason.CRASHED) in events)
        owner.start("m")
        other.lose_machine("m")
        wait_for(lambda: Event("m", EventKind.STOPPED, StopReason.LOST) in events)
    finally:
        owner.close()
    assert owner.state("m") is MachineState.ABSENT
    assert owner.inventory().directories == {"m"}
    with pytest.raises(MachineNotFound):
        owner.start("m")


def test_a_guest_that_ignores_shutdown_and_external_saves_are_simulated(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.prepare(SPEC)
    driver.ignore_power_button("m")
    driver.start("m")
    assert driver.shutdown("m", 1.0) is False
    driver.start("m")
    driver.save_externally("m")
    assert driver.state("m") is MachineState.ASLEEP
    driver.start("m")
    assert driver.state("m") is MachineState.RUNNING


class SimulatedCrash(BaseException):
    """Stands for the end of the process: no error handler runs."""


def crash_at(point: str) -> Callable[[str], None]:
    def at(reached: str) -> None:
        if reached == point:
            raise SimulatedCrash

    return at


def test_a_boot_configuration_round_trips(tmp_path: Path):
    workload = Workload("w", ("a", "b"), {"K": "v"}, restart=WorkloadRestart.ALWAYS, log_path="/l")
    boot = Boot("m", cmd=("x",), workloads=(workload,), ssh=True, ssh_keys=("ssh-ed25519 A",))
    driver = FakeDriver(tmp_path)
    driver.prepare(MachineSpec("m", "sha256:x", 1, 128, 64, "10.0.0.2", boot))
    assert driver._known("m").spec.boot == boot


def test_a_failed_sleep_leaves_no_partial_memory(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.prepare(SPEC)
    driver.start("m")
    driver.fail_next("sleep:half", BackendUnavailable("gone"))
    with pytest.raises(BackendUnavailable):
        driver.sleep("m")
    assert driver.state("m") is MachineState.RUNNING
    assert driver.inventory().saved == frozenset()


def test_a_crash_during_sleep_leaves_partial_memory_that_the_next_open_removes(tmp_path: Path):
    driver = FakeDriver(tmp_path, crash_hook=crash_at("sleep:half"))
    driver.prepare(SPEC)
    driver.start("m")
    with pytest.raises(SimulatedCrash):
        driver.sleep("m")
    after = FakeDriver(tmp_path)
    assert after.state("m") is MachineState.RUNNING
    assert after.inventory().saved == {"m"}
    after.open(lambda event: None)
    after.close()
    assert after.inventory().saved == frozenset()


def test_a_crash_during_reset_disk_keeps_the_old_disk(tmp_path: Path):
    driver = FakeDriver(tmp_path, crash_hook=crash_at("reset_disk:half"))
    driver.prepare(SPEC)
    disk = tmp_path / "directories" / "m" / "disk"
    (disk / "file").touch()
    with pytest.raises(SimulatedCrash):
        driver.reset_disk("m")
    assert (disk / "file").exists()
    driver.crash_hook = None
    driver.reset_disk("m")
    assert list(disk.iterdir()) == []


def test_corrupt_memory_is_reported_once_and_dropped(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.prepare(SPEC)
    driver.start("m")
    driver.sleep("m")
    driver.corrupt_saved_memory("m")
    with pytest.raises(SavedMemoryUnusable):
        driver.start("m")
    assert driver.state("m") is MachineState.OFF
    driver.start("m")
    assert driver.state("m") is MachineState.RUNNING


def test_the_resync_count_restarts_with_each_run(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.prepare(SPEC)
    driver.start("m")
    driver.resync_guest("m")
    assert driver.resync_count("m") == 1
    driver.sleep("m")
    driver.start("m")
    assert driver.resync_count("m") == 0
    driver.resync_guest("m")
    driver.pause("m")
    driver.resume("m")
    assert driver.resync_count("m") == 0


def test_a_machine_that_slept_before_ready_continues_its_boot_after_wake(tmp_path: Path):
    driver = FakeDriver(tmp_path, delays={"boot": 0.2})
    driver.prepare(SPEC)
    driver.start("m")
    driver.sleep("m")
    time.sleep(0.3)
    driver.start("m")
    with pytest.raises(GuestUnreachable):
        driver.resync_guest("m")
    driver.wait_ready("m", 5)
    driver.resync_guest("m")


def test_set_boot_id_changes_the_boot_id(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    before = driver.capacity().boot_id
    driver.set_boot_id("another")
    assert driver.capacity().boot_id == "another" != before


def test_commands_that_write_without_end_are_ended_with_what_is_left_unread(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    driver.prepare(SPEC)
    driver.start("m")
    driver.wait_ready("m", 10)
    session = FakeGuestSession(tmp_path, "m")

    async def run_at_once() -> list[ExecResult]:
        commands = (session.execute(["/bin/sh", "-c", "exec yes"], stop_after=(b"\n", 1)) for _ in range(40))
        return await asyncio.wait_for(asyncio.gather(*commands), 30)

    assert all(result.truncated for result in asyncio.run(run_at_once()))
    driver.delete("m")


def test_machines_of_the_fake_driver_refuse_terminals_with_a_documented_error():
    async def work() -> None:
        client = open_hold(GuestAddress("m", "10.0.0.2", 1, ""), HoldSettings())
        with pytest.raises(HoldUnsupported) as refused:
            await client.create_terminal(["true"])
        assert refused.value.code == "hold_unsupported"
        await client.close()

    asyncio.run(work())


def test_peers_with_addresses_of_machines_are_refused_together(tmp_path: Path):
    driver = FakeDriver(tmp_path)
    good = Peer(IPv4Address("192.0.2.2"), IPv4Network("10.201.0.0/20"))
    driver.apply_peers([good])
    with pytest.raises(BackendUnavailable):
        driver.apply_peers([Peer(IPv4Address("10.202.0.7"), IPv4Network("10.202.0.0/20"))])
    assert driver.peers == {good}
