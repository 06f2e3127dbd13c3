"""The driver contract: snapshots that go to another host, and machines that sleep on them. Every backend passes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakehost import Died
from vmbackend.copies import AfterSnapshot, Difference
from vmbackend.driver import EventKind, MachineState
from vmbackend.errors import (
    BackendUnavailable,
    CapacityExceeded,
    InvalidMachineState,
    MachineNotFound,
    SavedMemoryUnusable,
    SnapshotIncompatible,
    SnapshotNotFound,
)
from vmbackend.fake.driver import FakeDriver
from vmbackend.guest.session import GuestAddress
from vmbackend.power import StartedFrom

from .conftest import Harness, make_harness
from .test_snapshot_contract import read, read_generation, write

LEFT, MOVED = "snap_left", "snap_moved"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """The fake host: one real machine has all of this in one test, as it is slow where there is no KVM."""
    made = make_harness("fake", tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture(params=["fake", pytest.param("libvirt", marks=pytest.mark.vm)])
def any_harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    made = make_harness(request.param, tmp_path, monkeypatch)
    try:
        yield made
        for snapshot in made.driver.inventory().snapshots:
            made.driver.remove_snapshot(snapshot)
    finally:
        made.close()


def fake_of(harness: Harness) -> FakeDriver:
    assert isinstance(harness.driver, FakeDriver)
    return harness.driver


def copy_of(folder: Path) -> Callable[[Path], None]:
    """Return what copies the files of a folder as they are."""

    def fetch(target: Path) -> None:
        for path in folder.iterdir():
            shutil.copy2(path, target / path.name)

    return fetch


def not_called(_folder: Path) -> None:
    raise AssertionError("nothing is to be copied")


def leave(harness: Harness, text: str = "before", **changes: object) -> GuestAddress:
    """Make a machine whose disk says so, and a snapshot of it as it ran last."""
    address = harness.running_machine(**changes)
    write(harness, address, text)
    harness.driver.snapshot(address.machine_id, LEFT, after=AfterSnapshot.STOP)
    return address


def arrive(harness: Harness, **changes: object) -> GuestAddress:
    """Make another machine that sleeps on a copy of that snapshot, which is gone by then."""
    stored = harness.driver.find_snapshot(LEFT)
    assert stored is not None
    folder = harness.driver.snapshot_folder(LEFT)
    harness.driver.receive_snapshot(MOVED, copy_of(folder), size_bytes=stored.size_bytes)
    spec = harness.spec(snapshot=MOVED, **changes)
    identity = harness.driver.prepare(spec)
    harness.driver.sleep_on(spec.id, MOVED)
    harness.driver.remove_snapshot(MOVED)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)


def wake(harness: Harness, address: GuestAddress) -> None:
    assert harness.driver.start(address.machine_id) is StartedFrom.MEMORY
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)


def test_a_machine_moves_with_its_memory(any_harness: Harness) -> None:
    harness, driver = any_harness, any_harness.driver
    left = leave(harness)
    needs, folder = driver.snapshot_needs(LEFT), driver.snapshot_folder(LEFT)
    assert needs
    assert driver.compare_needs(needs) == ()
    made = driver.receive_snapshot(MOVED, copy_of(folder), size_bytes=1 << 20)
    known = driver.find_snapshot(LEFT)
    assert known is not None
    assert (made.memory, made.disk_mb, made.made_at) == (True, known.disk_mb, known.made_at)
    assert driver.receive_snapshot(MOVED, not_called, size_bytes=1 << 60) == made
    assert driver.snapshot_needs(MOVED) == needs
    assert driver.compare_snapshot(MOVED) == ()
    assert driver.received_ids() == frozenset()
    spec = harness.spec(snapshot=MOVED)
    identity = driver.prepare(spec)
    for _ in range(2):
        driver.sleep_on(spec.id, MOVED)
    driver.sync_machine(spec.id)
    for snapshot in (LEFT, MOVED):
        driver.remove_snapshot(snapshot)
    driver.sleep_on(spec.id, MOVED)
    assert driver.state(spec.id) is MachineState.ASLEEP
    assert driver.inventory().saved == {spec.id}
    arrived = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    driver.delete(left.machine_id)
    wake(harness, arrived)
    assert driver.inventory().saved == frozenset()
    assert read(harness, arrived) == "before"
    generation = read_generation(harness, arrived)
    write(harness, arrived, "after")
    driver.sleep(spec.id)
    wake(harness, arrived)
    assert read(harness, arrived) == "after"
    assert read_generation(harness, arrived) == generation
    assert driver.shutdown(spec.id, harness.boot_seconds)
    assert driver.state(spec.id) is MachineState.OFF
    assert driver.inventory().saved == frozenset()


def test_its_memory_is_the_snapshots_and_its_generation_its_own(harness: Harness) -> None:
    driver = fake_of(harness)
    left = harness.running_machine()
    driver.set_memory(left.machine_id, "kept")
    driver.snapshot(left.machine_id, LEFT)
    first, second = arrive(harness), arrive(harness)
    for each in (first, second):
        wake(harness, each)
        assert driver.memory_of(each.machine_id) == "kept"
    generations = {driver.generation_of(each.machine_id) for each in (left, first, second)}
    assert len(generations) == 3


def test_needs_that_cannot_be_read_differ(harness: Harness) -> None:
    leave(harness)
    needs = harness.driver.snapshot_needs(LEFT)
    for bad in ([], "needs", None, {**needs, "more": 1}, {"image": 1}, {**needs, "image": ["sha256:image"]}):
        assert harness.driver.compare_needs(bad), bad  # type: ignore[arg-type]
    assert harness.driver.compare_needs({}) == ()
    assert [each.what for each in harness.driver.compare_needs({**needs, "image": "sha256:other"})]


def test_a_fake_host_can_lack_what_memory_needs(harness: Harness) -> None:
    leave(harness)
    lacks = Difference("version of QEMU", "7.2", "8.0")
    fake_of(harness).set_lacks(lacks)
    assert harness.driver.compare_needs(harness.driver.snapshot_needs(LEFT)) == (lacks,)


def test_a_snapshot_without_memory_needs_nothing_and_moves(harness: Harness) -> None:
    address = harness.running_machine()
    write(harness, address, "before")
    harness.driver.snapshot(address.machine_id, LEFT, memory=False)
    assert harness.driver.snapshot_needs(LEFT) == {}
    folder = harness.driver.snapshot_folder(LEFT)
    assert not harness.driver.receive_snapshot(MOVED, copy_of(folder), size_bytes=1).memory
    spec = harness.spec(snapshot=MOVED)
    harness.driver.prepare(spec)
    with pytest.raises(SnapshotIncompatible):
        harness.driver.sleep_on(spec.id, MOVED)
    assert harness.driver.state(spec.id) is MachineState.OFF
    assert harness.driver.start(spec.id) is StartedFrom.BOOT


def test_what_is_not_there_is_named(harness: Harness) -> None:
    spec = harness.spec()
    harness.driver.prepare(spec)
    for call in (harness.driver.snapshot_needs, harness.driver.snapshot_folder):
        with pytest.raises(SnapshotNotFound):
            call("snap_none")
    with pytest.raises(SnapshotNotFound):
        harness.driver.sleep_on(spec.id, "snap_none")
    with pytest.raises(MachineNotFound):
        harness.driver.sleep_on("none", LEFT)
    with pytest.raises(MachineNotFound):
        harness.driver.sync_machine("none")


def test_a_copy_goes_on_where_it_ended_until_it_is_dropped(harness: Harness) -> None:
    leave(harness)
    folder = harness.driver.snapshot_folder(LEFT)

    def interrupted(target: Path) -> None:
        shutil.copy2(folder / "memory", target)
        raise BackendUnavailable("The other host does not answer.")

    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            harness.driver.receive_snapshot(MOVED, interrupted, size_bytes=1)
    harness.reopen_driver()
    assert harness.driver.received_ids() == {MOVED}
    assert harness.driver.inventory().snapshots == {LEFT}

    def rest(target: Path) -> None:
        assert [path.name for path in target.iterdir()] == ["memory"]
        copy_of(folder)(target)

    harness.driver.receive_snapshot(MOVED, rest, size_bytes=1)
    assert harness.driver.received_ids() == frozenset()
    with pytest.raises(BackendUnavailable):
        harness.driver.receive_snapshot("snap_third", interrupted, size_bytes=1)
    for _ in range(2):
        harness.driver.drop_received("snap_third")
    assert harness.driver.received_ids() == frozenset()


def test_a_snapshot_that_has_no_room_is_not_copied(harness: Harness) -> None:
    with pytest.raises(CapacityExceeded):
        harness.driver.receive_snapshot(MOVED, not_called, size_bytes=1 << 60)
    assert harness.driver.find_snapshot(MOVED) is None


def test_files_that_are_no_snapshot_are_removed(harness: Harness) -> None:
    leave(harness)
    folder = harness.driver.snapshot_folder(LEFT)

    def more(target: Path) -> None:
        copy_of(folder)(target)
        (target / "more").touch()

    with pytest.raises(SnapshotIncompatible):
        harness.driver.receive_snapshot(MOVED, more, size_bytes=1)
    assert harness.driver.received_ids() == frozenset()
    assert harness.driver.find_snapshot(MOVED) is None


def test_only_a_machine_that_is_off_with_that_disk_and_of_that_size_sleeps_on_it(harness: Harness) -> None:
    leave(harness)
    other, large, taken = harness.spec(), harness.spec(snapshot=LEFT, memory_mb=256), harness.spec(snapshot=LEFT)
    for spec in (other, large, taken):
        harness.driver.prepare(spec)
    with pytest.raises(InvalidMachineState):
        harness.driver.sleep_on(other.id, LEFT)
    with pytest.raises(SnapshotIncompatible):
        harness.driver.sleep_on(large.id, LEFT)
    harness.driver.start(taken.id)
    with pytest.raises(InvalidMachineState):
        harness.driver.sleep_on(taken.id, LEFT)
    harness.driver.destroy(taken.id)
    with pytest.raises(InvalidMachineState):
        harness.driver.sleep_on(taken.id, LEFT)
    harness.driver.take_disk(taken.id, LEFT)
    harness.driver.sleep_on(taken.id, LEFT)
    assert harness.driver.state(taken.id) is MachineState.ASLEEP


def test_memory_that_cannot_be_loaded_leaves_the_machine_off_with_its_disk(harness: Harness) -> None:
    leave(harness)
    arrived = arrive(harness)
    harness.corrupt_memory(harness.driver, arrived.machine_id)
    with pytest.raises(SavedMemoryUnusable):
        harness.driver.start(arrived.machine_id)
    assert harness.driver.state(arrived.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()
    assert harness.driver.start(arrived.machine_id) is StartedFrom.BOOT
    harness.driver.wait_ready(arrived.machine_id, harness.boot_seconds)
    assert read(harness, arrived) == "before"


def test_a_full_host_leaves_it_asleep(harness: Harness) -> None:
    leave(harness)
    arrived, driver = arrive(harness), fake_of(harness)
    size = driver.capacity()
    driver.set_capacity(replace(size, memory_mb=100))
    with pytest.raises(CapacityExceeded):
        driver.start(arrived.machine_id)
    assert driver.state(arrived.machine_id) is MachineState.ASLEEP
    driver.set_capacity(size)
    wake(harness, arrived)


@pytest.mark.parametrize("method", ["destroy", "shutdown", "delete"])
def test_ending_it_removes_its_memory(harness: Harness, method: str) -> None:
    leave(harness)
    arrived = arrive(harness)
    if method == "shutdown":
        assert harness.driver.shutdown(arrived.machine_id, 1.0)
    else:
        getattr(harness.driver, method)(arrived.machine_id)
    assert harness.driver.inventory().saved == frozenset()
    if method != "delete":
        assert harness.driver.start(arrived.machine_id) is StartedFrom.BOOT


def test_it_survives_the_driver_and_a_snapshot_of_it_has_its_memory(harness: Harness) -> None:
    leave(harness)
    arrived = arrive(harness)
    harness.reopen_driver()
    assert harness.driver.state(arrived.machine_id) is MachineState.ASLEEP
    harness.driver.remove_snapshot(LEFT)
    assert harness.driver.snapshot(arrived.machine_id, LEFT).memory
    assert harness.driver.state(arrived.machine_id) is MachineState.ASLEEP
    again = arrive(harness)
    for each in (arrived, again):
        wake(harness, each)
        assert read(harness, each) == "before"


def test_it_reports_ready_once_it_runs(harness: Harness) -> None:
    leave(harness)
    arrived = arrive(harness)
    assert not [event for event in harness.events if event.machine_id == arrived.machine_id]
    wake(harness, arrived)
    harness.wait_event(arrived.machine_id, EventKind.READY)


@pytest.mark.parametrize("point", ["receive:fetched", "sleep_on:half"])
def test_a_death_in_the_middle_is_made_good_by_the_same_calls(harness: Harness, point: str) -> None:
    leave(harness)
    harness.driver.prepare(spec := harness.spec(snapshot=LEFT))

    def die(at: str) -> None:
        if at == point:
            raise Died

    def move() -> None:
        harness.driver.receive_snapshot(MOVED, copy_of(harness.driver.snapshot_folder(LEFT)), size_bytes=1)
        harness.driver.take_disk(spec.id, MOVED)
        harness.driver.sleep_on(spec.id, MOVED)

    fake_of(harness).crash_hook = die
    with pytest.raises(Died):
        move()
    harness.reopen_driver()
    assert harness.driver.state(spec.id) is MachineState.OFF
    move()
    assert harness.driver.state(spec.id) is MachineState.ASLEEP
    assert harness.driver.start(spec.id) is StartedFrom.MEMORY
