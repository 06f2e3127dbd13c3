"""The driver contract: snapshots, and machines that go on from one.

Every backend is to pass this file; those in BACKENDS do. A backend joins when its `Copied` is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmbackend.conftest import Harness, make_harness
from vmbackend.copies import AfterSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import CapacityExceeded, InvalidMachineState, MachineNotFound, SnapshotNotFound
from vmbackend.guest.session import GuestAddress
from vmbackend.power import StartedFrom

BACKENDS = ("fake", pytest.param("libvirt", marks=pytest.mark.vm))
SNAPSHOT = "snap_one"


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    made = make_harness(request.param, tmp_path, monkeypatch)
    try:
        yield made
        for snapshot in made.driver.inventory().snapshots:
            made.driver.remove_snapshot(snapshot)
    finally:
        made.close()


def write(harness: Harness, address: GuestAddress, text: str) -> None:
    harness.pool.call(address, lambda session: session.execute(f"echo {text} > note; sync", working_dir="/"), 150)


def read(harness: Harness, address: GuestAddress) -> str:
    result = harness.pool.call(address, lambda session: session.execute("cat note", working_dir="/"), 150)
    text: str = result.stdout.decode().strip()
    return text


def read_generation(harness: Harness, address: GuestAddress) -> str:
    async def content(session) -> bytes:
        return b"".join([chunk async for chunk in session.read("/run/kit/generation")])

    text: str = harness.pool.call(address, content, 150).decode().strip()
    return text


def copy(harness: Harness, *, load: bool = True, **changes) -> GuestAddress:
    """A machine that was made from the snapshot, and goes on from its memory or boots."""
    spec = harness.spec(snapshot=SNAPSHOT, **changes)
    identity = harness.driver.prepare(spec)
    if load:
        assert harness.driver.load(spec.id, SNAPSHOT) is StartedFrom.SNAPSHOT
    else:
        harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)


@pytest.fixture
def parent(harness: Harness) -> GuestAddress:
    """A running machine whose disk says `before`."""
    address = harness.running_machine()
    write(harness, address, "before")
    return address


def test_a_running_machine_goes_on_after_its_snapshot(harness: Harness, parent: GuestAddress):
    made = harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    assert (made.id, made.memory, made.disk_mb) == (SNAPSHOT, True, 64)
    assert made.size_bytes > 0
    assert harness.driver.state(parent.machine_id) is MachineState.RUNNING
    assert harness.driver.find_snapshot(SNAPSHOT) == made
    assert harness.driver.inventory().snapshots == {SNAPSHOT}
    assert SNAPSHOT not in harness.driver.inventory().ids()
    assert harness.driver.compare_snapshot(SNAPSHOT) == ()


def test_a_snapshot_never_changes(harness: Harness, parent: GuestAddress):
    first = harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    write(harness, parent, "after")
    assert harness.driver.snapshot(parent.machine_id, SNAPSHOT) == first
    assert read(harness, copy(harness)) == "before"
    assert read(harness, parent) == "after"


def test_copies_have_their_own_disk_key_and_generation(harness: Harness, parent: GuestAddress):
    harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    one, two = copy(harness), copy(harness)
    write(harness, one, "one")
    assert (read(harness, one), read(harness, two)) == ("one", "before")
    assert len({parent.host_key, one.host_key, two.host_key}) == 3
    assert read_generation(harness, one) != read_generation(harness, two)


def test_a_copy_may_boot_from_the_disk_alone(harness: Harness, parent: GuestAddress):
    harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    assert read(harness, copy(harness, load=False, disk_mb=96)) == "before"


@pytest.mark.parametrize(
    ("after", "state"), [(AfterSnapshot.PAUSED, MachineState.PAUSED), (AfterSnapshot.STOP, MachineState.OFF)]
)
def test_a_machine_is_left_as_asked(harness: Harness, parent: GuestAddress, after: AfterSnapshot, state: MachineState):
    for _ in range(2):  # again, as after a death before the answer
        assert harness.driver.snapshot(parent.machine_id, SNAPSHOT, after=after).memory
        assert harness.driver.state(parent.machine_id) is state


def test_a_machine_that_is_off_has_no_memory_to_keep(harness: Harness, parent: GuestAddress):
    harness.driver.shutdown(parent.machine_id, harness.boot_seconds)
    assert harness.driver.snapshot(parent.machine_id, SNAPSHOT).memory is False
    assert harness.driver.state(parent.machine_id) is MachineState.OFF
    assert read(harness, copy(harness, load=False)) == "before"


def test_paused_and_sleeping_machines_stay_so(harness: Harness, parent: GuestAddress):
    harness.driver.pause(parent.machine_id)
    assert harness.driver.snapshot(parent.machine_id, SNAPSHOT).memory
    assert harness.driver.state(parent.machine_id) is MachineState.PAUSED
    harness.driver.sleep(parent.machine_id)
    assert harness.driver.snapshot(parent.machine_id, "snap_two", after=AfterSnapshot.PAUSED).memory
    assert harness.driver.state(parent.machine_id) is MachineState.ASLEEP
    harness.driver.snapshot(parent.machine_id, "snap_two", after=AfterSnapshot.STOP)
    assert harness.driver.state(parent.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()


def test_a_machine_goes_back_to_its_snapshot(harness: Harness, parent: GuestAddress):
    harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    write(harness, parent, "after")
    with pytest.raises(InvalidMachineState):
        harness.driver.take_disk(parent.machine_id, SNAPSHOT)
    harness.driver.destroy(parent.machine_id)
    for _ in range(2):
        harness.driver.take_disk(parent.machine_id, SNAPSHOT)
    identity = harness.driver.prepare(harness.spec(id=parent.machine_id, ip=parent.ip))
    assert identity.ssh_host_key == parent.host_key
    assert harness.driver.load(parent.machine_id, SNAPSHOT) is StartedFrom.SNAPSHOT
    assert harness.driver.load(parent.machine_id, SNAPSHOT) is None
    harness.driver.wait_ready(parent.machine_id, harness.boot_seconds)
    assert read(harness, parent) == "before"


def test_a_snapshot_may_have_the_disk_alone(harness: Harness, parent: GuestAddress):
    made = harness.driver.snapshot(parent.machine_id, SNAPSHOT, memory=False)
    assert not made.memory
    assert harness.driver.state(parent.machine_id) is MachineState.RUNNING
    write(harness, parent, "after")
    assert read(harness, copy(harness, load=False)) == "before"
    assert read(harness, parent) == "after"


def test_a_smaller_disk_cannot_take_a_snapshot(harness: Harness):
    harness.driver.snapshot(harness.running_machine(disk_mb=128).machine_id, SNAPSHOT)
    spec = harness.spec(disk_mb=64)
    harness.driver.prepare(spec)
    with pytest.raises(InvalidMachineState):
        harness.driver.take_disk(spec.id, SNAPSHOT)


def test_machines_outlive_snapshot_and_parent(harness: Harness, parent: GuestAddress):
    harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    made = copy(harness)
    harness.driver.delete(parent.machine_id)
    for _ in range(2):
        harness.driver.remove_snapshot(SNAPSHOT)
    assert harness.driver.inventory().snapshots == frozenset()
    assert read(harness, made) == "before"
    harness.driver.flatten(made.machine_id, harness.boot_seconds)
    assert read(harness, made) == "before"
    harness.driver.shutdown(made.machine_id, harness.boot_seconds)
    harness.driver.start(made.machine_id)
    harness.driver.wait_ready(made.machine_id, harness.boot_seconds)
    assert read(harness, made) == "before"


def test_what_is_not_there_is_named(harness: Harness, parent: GuestAddress):
    assert harness.driver.find_snapshot("snap_none") is None
    with pytest.raises(SnapshotNotFound):
        harness.driver.compare_snapshot("snap_none")
    with pytest.raises(SnapshotNotFound):
        harness.driver.load(parent.machine_id, "snap_none")
    with pytest.raises(MachineNotFound):
        harness.driver.snapshot("none", SNAPSHOT)
    spec = harness.spec(snapshot="snap_none")
    with pytest.raises(SnapshotNotFound):
        harness.driver.prepare(spec)
    assert harness.driver.state(spec.id) is MachineState.ABSENT
    assert spec.id not in harness.driver.inventory().ids()


def test_without_room_nothing_is_written_and_the_machine_runs(harness: Harness, parent: GuestAddress):
    harness.fill_disk(harness.driver)
    with pytest.raises(CapacityExceeded):
        harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    assert harness.driver.inventory().snapshots == frozenset()
    assert harness.driver.state(parent.machine_id) is MachineState.RUNNING


def test_snapshots_survive_the_driver(harness: Harness, parent: GuestAddress):
    made = harness.driver.snapshot(parent.machine_id, SNAPSHOT)
    harness.reopen_driver()
    assert harness.driver.find_snapshot(SNAPSHOT) == made
    assert read(harness, copy(harness)) == "before"
