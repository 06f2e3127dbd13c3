"""Snapshots of the fake driver: the controls that tests of the platform use, and deaths in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakehost import Died
from vmbackend.copies import Difference
from vmbackend.driver import Boot, Inventory, MachineSpec, MachineState
from vmbackend.errors import CopyUnproven, SnapshotIncompatible
from vmbackend.fake.driver import FakeDriver

DIFFERS = Difference("QEMU", "7.2", "10.0")


def spec(machine_id: str, **changes: object) -> MachineSpec:
    fields = {"image": "sha256:image", "cpus": 1.0, "memory_mb": 192, "disk_mb": 64, "ip": "10.1.0.9"}
    return MachineSpec(id=machine_id, boot=Boot(hostname="test"), **(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """With a machine `one` whose memory says `kept`, and the snapshot `snap` of it."""
    made = FakeDriver(tmp_path)
    made.prepare(spec("one"))
    made.start("one")
    made.set_memory("one", "kept")
    made.snapshot("one", "snap")
    return made


def test_memory_is_copied_and_ends_with_its_process(driver: FakeDriver) -> None:
    driver.set_memory("one", "changed")
    driver.prepare(spec("two", snapshot="snap"))
    driver.load("two", "snap")
    assert (driver.memory_of("one"), driver.memory_of("two")) == ("changed", "kept")
    driver.destroy("two")
    driver.start("two")
    assert driver.memory_of("two") == ""


@pytest.mark.parametrize("changes", [{"memory_mb": 256}, {"cpus": 2.0}, {"image": "sha256:other"}])
def test_memory_fits_its_own_kind_of_machine_only(driver: FakeDriver, changes: dict[str, object]) -> None:
    driver.prepare(spec("two", snapshot="snap", **changes))
    with pytest.raises(SnapshotIncompatible):
        driver.load("two", "snap")
    assert driver.state("two") is MachineState.OFF


def test_a_host_that_differs_refuses_memory_and_gives_the_disk(driver: FakeDriver) -> None:
    driver.set_differences("snap", DIFFERS)
    driver.prepare(spec("two", snapshot="snap"))
    assert driver.compare_snapshot("snap") == (DIFFERS,)
    with pytest.raises(SnapshotIncompatible):
        driver.load("two", "snap")
    driver.start("two")
    assert driver.memory_of("two") == ""


def test_an_unproven_copy_is_off(driver: FakeDriver) -> None:
    driver.prepare(spec("two", snapshot="snap"))
    driver.fail_next("load", CopyUnproven("It did not answer."))
    with pytest.raises(CopyUnproven):
        driver.load("two", "snap")
    assert driver.state("two") is MachineState.OFF


@pytest.mark.parametrize("point", ["snapshot:half", "snapshot:written"])
def test_a_death_leaves_a_complete_snapshot_or_none(driver: FakeDriver, point: str) -> None:
    driver.crash_hook = dies_at(point)
    with pytest.raises(Died):
        driver.snapshot("one", "other")
    driver.crash_hook = None
    driver.open(lambda event: None)
    driver.close()
    found: Inventory = driver.inventory()
    assert found.snapshots == ({"snap", "other"} if point == "snapshot:written" else {"snap"})
    assert not list((driver.boot_log("one").parents[2] / "snapshots").glob(".*"))
    assert driver.state("one") is MachineState.RUNNING


def dies_at(wanted: str) -> Callable[[str], None]:
    def hook(point: str) -> None:
        if point == wanted:
            raise Died

    return hook
