"""Snapshots of real machines in every state: what they contain, and how the machine goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vmbackend.driver import MachineState
from vmbackend.errors import SnapshotNotFound

from .conftest import Harness, Machine
from .snapshot_scenes import content_of_snapshot, entry_of, files_of, run

pytestmark = pytest.mark.vm


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


@pytest.fixture
def machine(real_machine: Machine) -> Iterator[Machine]:
    with real_machine.opened():
        yield real_machine


def test_a_snapshot_of_a_running_machine_has_its_disk_and_memory_and_the_machine_goes_on(
    machine: Machine, tmp_path: Path
) -> None:
    harness, address = machine.harness, machine.address
    boot = run(harness, address, "echo before > /kept; sync; cat /proc/sys/kernel/random/boot_id")
    made = harness.driver.snapshot(address.machine_id, "s1")
    assert (made.id, made.memory, made.disk_mb) == ("s1", True, 64)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert run(harness, address, "echo after > /kept; sync; cat /proc/sys/kernel/random/boot_id") == boot
    assert content_of_snapshot(harness, "s1", "kept", tmp_path) == "before"
    assert harness.driver.find_snapshot("s1") == made
    assert harness.driver.inventory().snapshots == {"s1"}
    assert harness.driver.compare_snapshot("s1") == ()
    assert entry_of(harness, "s1").is_unchanged()
    files = files_of(harness, address.machine_id)
    assert [layer.format for layer in files.read_chain().layers] == ["raw", "qcow2"]
    harness.driver.flatten(address.machine_id, 60.0)
    assert files.read_chain().is_flat
    assert run(harness, address, "cat /kept; cat /proc/sys/kernel/random/boot_id") == f"after\n{boot}"
    assert sorted(path.name for path in files.path.glob("data*")) == [files.top_disk().name]
    assert files.top_disk().stat().st_nlink == 1
    harness.driver.remove_snapshot("s1")
    assert harness.driver.find_snapshot("s1") is None
    with pytest.raises(SnapshotNotFound):
        harness.driver.compare_snapshot("s1")
