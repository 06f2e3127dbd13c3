"""Snapshots of real machines in every state: what they contain, and how the machine goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vmbackend.copies import AfterSnapshot
from vmbackend.driver import EventKind, MachineState, StopReason
from vmbackend.errors import InvalidMachineState, SnapshotNotFound

from .conftest import Machine
from .snapshot_scenes import content_of_layers, content_of_snapshot, entry_of, files_of, run
from .test_sleep_contract import read_secret, wake

pytestmark = pytest.mark.vm

COUNTING = """
rm -f /count
(n=0; while [ $n -lt 100000 ]; do n=$((n+1)); echo $n >> /count; done) > /dev/null 2>&1 &
sleep 1; sync
"""


@pytest.fixture
def machine(snapshot_machine: Machine) -> Machine:
    return snapshot_machine


def test_a_snapshot_of_a_running_machine_has_its_disk_and_memory_and_the_machine_goes_on(
    machine: Machine, tmp_path: Path
) -> None:
    harness, address = machine.harness, machine.address
    harness.driver.flatten(address.machine_id, 60.0)  # tests before may have left layers
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


@pytest.mark.parametrize("after", [AfterSnapshot.PAUSED, AfterSnapshot.STOP])
def test_a_machine_does_not_run_from_the_instant_of_its_snapshot_on(
    machine: Machine, after: AfterSnapshot, tmp_path: Path
) -> None:
    harness, address = machine.harness, machine.address
    run(harness, address, COUNTING)
    made = harness.driver.snapshot(address.machine_id, "s1", after=after)
    expected = MachineState.PAUSED if after is AfterSnapshot.PAUSED else MachineState.OFF
    assert harness.driver.state(address.machine_id) is expected
    files, entry = files_of(harness, address.machine_id), entry_of(harness, "s1")
    # Nothing was written to the disk since.
    kept = content_of_snapshot(harness, "s1", "count", tmp_path)
    assert kept == content_of_layers(files.path, files.read_chain().layers, "count", tmp_path)
    assert made == harness.driver.snapshot(address.machine_id, "s1", after=after)
    assert entry.memory.exists()
    if after is AfterSnapshot.STOP:
        assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is StopReason.DESTROYED
        harness.driver.start(address.machine_id)
        harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    else:
        harness.driver.resume(address.machine_id)
    assert int(run(harness, address, "cat /count | wc -l")) >= kept.count("\n") > 0


def test_a_complete_snapshot_is_not_made_again_but_its_after_holds(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    made = harness.driver.snapshot(address.machine_id, "s1")
    chain = files_of(harness, address.machine_id).read_chain()
    assert harness.driver.snapshot(address.machine_id, "s1", after=AfterSnapshot.PAUSED) == made
    assert harness.driver.state(address.machine_id) is MachineState.PAUSED
    assert files_of(harness, address.machine_id).read_chain() == chain
    harness.driver.resume(address.machine_id)


def test_a_paused_machine_stays_paused_and_goes_on_above_its_snapshot(machine: Machine, tmp_path: Path) -> None:
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    run(harness, address, "echo before > /kept; sync")
    harness.driver.pause(address.machine_id)
    made = harness.driver.snapshot(address.machine_id, "s1")
    assert harness.driver.state(address.machine_id) is MachineState.PAUSED
    assert made.memory
    harness.driver.flatten(address.machine_id, 60.0)
    assert harness.driver.state(address.machine_id) is MachineState.PAUSED
    harness.driver.resume(address.machine_id)
    assert read_secret(harness, address) == secret
    run(harness, address, "echo after > /kept; sync")
    assert content_of_snapshot(harness, "s1", "kept", tmp_path) == "before"


def test_a_sleeping_machine_sleeps_on_and_wakes_above_its_snapshot(machine: Machine, tmp_path: Path) -> None:
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    run(harness, address, "echo before > /kept; sync")
    harness.driver.sleep(address.machine_id)
    with pytest.raises(InvalidMachineState):
        harness.driver.flatten(address.machine_id, 60.0)
    for name in ("s1", "s2", "s3", "s4"):  # the last one has to flatten first
        made = harness.driver.snapshot(address.machine_id, name, after=AfterSnapshot.PAUSED)
        assert made.memory
        assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    assert len(files_of(harness, address.machine_id).read_chain().layers) == 2
    wake(harness, address)
    assert read_secret(harness, address) == secret
    assert run(harness, address, "cat /kept; echo after > /kept; sync") == "before"
    assert {content_of_snapshot(harness, name, "kept", tmp_path) for name in ("s1", "s4")} == {"before"}
    harness.driver.sleep(address.machine_id)
    wake(harness, address)
    assert run(harness, address, "cat /kept") == "after"
    harness.driver.sleep(address.machine_id)
    harness.driver.snapshot(address.machine_id, "s5", after=AfterSnapshot.STOP)
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()
    assert content_of_snapshot(harness, "s5", "kept", tmp_path) == "after"


def test_a_machine_that_is_off_keeps_its_disk_only(machine: Machine, tmp_path: Path) -> None:
    harness, address = machine.harness, machine.address
    run(harness, address, "echo before > /kept; sync")
    assert harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    made = harness.driver.snapshot(address.machine_id, "s1")
    assert not made.memory
    assert harness.driver.compare_snapshot("s1") == ()
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert run(harness, address, "cat /kept; echo after > /kept; sync") == "before"
    assert content_of_snapshot(harness, "s1", "kept", tmp_path) == "before"
    assert harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    harness.driver.flatten(address.machine_id, 60.0)
    assert files_of(harness, address.machine_id).read_chain().is_flat
    harness.driver.take_disk(address.machine_id, "s1")
    harness.driver.take_disk(address.machine_id, "s1")
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert run(harness, address, "cat /kept") == "before"
    with pytest.raises(InvalidMachineState):
        harness.driver.take_disk(address.machine_id, "s1")
    assert harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    harness.driver.reset_disk(address.machine_id)
    assert files_of(harness, address.machine_id).read_chain().is_flat
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert run(harness, address, "ls /kept 2>/dev/null || echo none") == "none"


def test_what_keeps_a_snapshots_memory_from_its_host_is_named(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.driver.snapshot(address.machine_id, "s1")
    manifest = entry_of(harness, "s1").path / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["needs"] |= {"qemu": 6002000, "base": "other", "kit": "gone", "accelerator": "kvm"}
    manifest.write_text(json.dumps(facts))
    found = {each.what: (each.snapshot, each.host) for each in harness.driver.compare_snapshot("s1")}
    assert found.keys() == {"version of QEMU", "files of the image", "guest kit", "accelerator"}
    assert found["version of QEMU"][0] == "6.2.0"
    assert found["guest kit"] == ("gone", "missing")
    assert found["accelerator"] == ("kvm", "qemu")
