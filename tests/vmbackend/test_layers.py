"""Machines that share layers of their disks: made, grown, emptied, and removed in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.run_extent import campaign_after
from vmbackend.driver import MachineState
from vmbackend.errors import InvalidMachineState, SnapshotNotFound
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt.store import FOLDER

from .conftest import Harness
from .snapshot_scenes import content_of_layers, content_of_snapshot, files_of, run

pytestmark = pytest.mark.vm


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


def stop(harness: Harness, address: GuestAddress) -> None:
    run(harness, address, "sync")
    harness.driver.destroy(address.machine_id)


def fork(harness: Harness, snapshot_id: str, own: str, **changes: object) -> GuestAddress:
    """A running machine whose disk is the snapshot's, and which has written a file of its own."""
    address = harness.running_machine(snapshot=snapshot_id, **changes)
    run(harness, address, f"echo {own} > /{own}; sync")
    return address


@pytest.mark.parametrize("seed", campaign_after(1, range(4)))
def test_forks_of_forks_live_on_whatever_is_removed_first(harness: Harness, tmp_path: Path, seed: int) -> None:
    machines = [harness.running_machine()]
    run(harness, machines[0], "echo a > /a; sync")
    for name, before in (("b", "a"), ("c", "b"), ("d", "c"), ("e", "d")):
        harness.driver.snapshot(machines[-1].machine_id, f"of_{before}")
        run(harness, machines[-1], f"echo later > /{before}; sync")
        stop(harness, machines[-1])
        machines.append(fork(harness, f"of_{before}", name))
    stop(harness, machines[-1])
    checks = [
        (machine_check(harness, each, f"{own}", tmp_path), machine_removal(harness, each))
        for each, own in zip(machines, "abcde", strict=True)
    ]
    checks += [
        (snapshot_check(harness, f"of_{own}", own, tmp_path), snapshot_removal(harness, f"of_{own}")) for own in "abcd"
    ]
    random.Random(seed).shuffle(checks)
    while checks:
        for check, _ in checks:
            check()
        checks.pop()[1]()
    assert harness.driver.inventory().ids() == frozenset()
    assert harness.driver.inventory().snapshots == frozenset()
    folder = harness.settings.machines_dir  # type: ignore[attr-defined]
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == []
    assert list((folder / FOLDER).iterdir()) == []


def machine_check(harness: Harness, address: GuestAddress, own: str, aside: Path) -> Callable[[], None]:
    """It has what it wrote last, and what each of its ancestors had at the snapshot."""
    files = files_of(harness, address.machine_id)

    def check() -> None:
        layers = files.read_chain().layers
        assert len(layers) <= 4
        assert content_of_layers(files.path, layers, own, aside) == ("later" if own < "e" else own)
        for ancestor in "abcde"[: "abcde".index(own)]:
            assert content_of_layers(files.path, layers, ancestor, aside) == ancestor

    return check


def snapshot_check(harness: Harness, snapshot_id: str, own: str, aside: Path) -> Callable[[], None]:
    def check() -> None:
        for name in "abcde"[: "abcde".index(own) + 1]:
            assert content_of_snapshot(harness, snapshot_id, name, aside) == name

    return check


def machine_removal(harness: Harness, address: GuestAddress) -> Callable[[], None]:
    return lambda: harness.driver.delete(address.machine_id)


def snapshot_removal(harness: Harness, snapshot_id: str) -> Callable[[], None]:
    return lambda: harness.driver.remove_snapshot(snapshot_id)


def size_in_mb(harness: Harness, address: GuestAddress) -> int:
    return int(run(harness, address, "df -k / | tail -1 | awk '{print $2}'")) >> 10


def test_a_machine_with_a_larger_disk_than_its_snapshot_has_room_from_its_first_start(harness: Harness) -> None:
    parent = harness.running_machine()
    run(harness, parent, "echo a > /a; sync")
    harness.driver.snapshot(parent.machine_id, "s1")
    spec = harness.spec(snapshot="s1", disk_mb=160)
    harness.driver.prepare(spec)
    # Memory of the snapshot would not match a file system that has grown.
    assert files_of(harness, spec.id).read_chain().file_system_mb == 64
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert files_of(harness, spec.id).read_chain().is_flat
    assert harness.driver.disk_allocations()[spec.id] > 0


def test_a_disk_that_was_taken_grows_with_the_next_preparation(harness: Harness) -> None:
    spec = harness.spec()
    identity = harness.driver.prepare(spec)
    address = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    run(harness, address, "echo kept > /kept; sync")
    harness.driver.snapshot(spec.id, "s1")
    stop(harness, address)
    harness.driver.take_disk(spec.id, "s1")
    harness.driver.prepare(harness.spec(id=spec.id, ip=spec.ip, disk_mb=128))
    harness.driver.prepare(harness.spec(id=spec.id, ip=spec.ip, disk_mb=192))
    chain = files_of(harness, spec.id).read_chain()
    assert (chain.taken, chain.file_system_mb) == ("s1", 64)
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert size_in_mb(harness, address) > 160
    assert run(harness, address, "cat /kept") == "kept"
    harness.driver.snapshot(spec.id, "s2")
    stop(harness, address)
    harness.driver.prepare(harness.spec(id=spec.id, ip=spec.ip, disk_mb=256))
    assert files_of(harness, spec.id).read_chain().is_flat
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert size_in_mb(harness, address) > 210
    with pytest.raises(InvalidMachineState):
        harness.driver.take_disk(spec.id, "s1")  # it runs


def test_a_preparation_that_cannot_take_its_snapshot_leaves_nothing(harness: Harness) -> None:
    spec = harness.spec(disk_mb=128)
    harness.driver.prepare(spec)
    harness.driver.snapshot(spec.id, "s1")
    for changes, error in (({"snapshot": "gone"}, SnapshotNotFound), ({"snapshot": "s1"}, InvalidMachineState)):
        other = harness.spec(disk_mb=64, **changes)
        with pytest.raises(error):
            harness.driver.prepare(other)
        assert harness.driver.state(other.id) is MachineState.ABSENT
        assert not files_of(harness, other.id).path.exists()
    small = harness.spec()
    harness.driver.prepare(small)
    with pytest.raises(InvalidMachineState):
        harness.driver.take_disk(small.id, "s1")
    with pytest.raises(SnapshotNotFound):
        harness.driver.take_disk(small.id, "gone")
    assert files_of(harness, small.id).read_chain().is_flat


def test_a_running_machine_is_flattened_before_it_gets_a_fifth_layer(harness: Harness, tmp_path: Path) -> None:
    address = harness.running_machine()
    for number in range(6):
        run(harness, address, f"echo {number} > /number; sync")
        harness.driver.snapshot(address.machine_id, f"s{number}")
        assert len(files_of(harness, address.machine_id).read_chain().layers) <= 4
    for number in range(6):
        assert content_of_snapshot(harness, f"s{number}", "number", tmp_path) == str(number)
    assert run(harness, address, "cat /number") == "5"
