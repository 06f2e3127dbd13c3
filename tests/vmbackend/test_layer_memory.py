"""Memory and disk of a snapshot are of one instant; machines with layers start from the templates of those without."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmbackend.driver import MachineState
from vmbackend.errors import InvalidMachineState, SnapshotIncompatible
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import templates
from vmbackend.libvirt.store import FOLDER
from vmbackend.power import StartedFrom

from .conftest import Harness
from .snapshot_scenes import entry_of, files_of, run

pytestmark = pytest.mark.vm

# The number is in memory, its lines are in a file.
COUNTING = "(n=0; while :; do n=$((n+1)); echo $n >> /count; done) > /dev/null 2>&1 & echo $!"
GAPS = """
sync; echo 3 > /proc/sys/vm/drop_caches
awk 'BEGIN { last = 0 } $1 != last + 1 { print "gap", last, $1 } { last = $1 } END { print "to", last }' /count
"""


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


def test_memory_goes_on_with_the_disk_where_both_were(harness: Harness) -> None:
    address = harness.running_machine()
    pid = run(harness, address, COUNTING)
    time.sleep(0.5)
    harness.driver.snapshot(address.machine_id, "s1")
    seen = int(run(harness, address, "cat /count | wc -l"))
    harness.driver.destroy(address.machine_id)
    harness.driver.take_disk(address.machine_id, "s1")
    files = files_of(harness, address.machine_id)
    os.link(entry_of(harness, "s1").memory, files.memory)
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    assert harness.driver.start(address.machine_id) is StartedFrom.MEMORY
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    time.sleep(0.5)
    run(harness, address, f"kill {pid}")
    (found,) = run(harness, address, GAPS).splitlines()
    assert int(found.split()[1]) > 0
    assert seen > 0
    assert entry_of(harness, "s1").is_unchanged()


def test_a_fork_goes_on_with_memory_and_disk_of_one_instant(harness: Harness) -> None:
    parent = harness.running_machine()
    pid = run(harness, parent, COUNTING)
    harness.driver.snapshot(parent.machine_id, "s1")
    spec = harness.spec(snapshot="s1")
    identity = harness.driver.prepare(spec)
    fork = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    assert harness.driver.load(spec.id, "s1") is StartedFrom.SNAPSHOT
    assert harness.driver.load(spec.id, "s1") is None
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    for address in (parent, fork):
        run(harness, address, f"kill {pid}")
        (found,) = run(harness, address, GAPS).splitlines()
        assert int(found.split()[1]) > 0
    harness.driver.destroy(spec.id)
    with pytest.raises(InvalidMachineState):
        harness.driver.load(spec.id, "s1")  # it has changed its disk
    harness.driver.take_disk(spec.id, "s1")
    manifest = entry_of(harness, "s1").path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"accelerator": "qemu"', '"accelerator": "kvm"'))
    with pytest.raises(SnapshotIncompatible, match="accelerator"):
        harness.driver.load(spec.id, "s1")
    assert harness.driver.state(spec.id) is MachineState.OFF


@pytest.fixture
def with_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    monkeypatch.setattr(templates, "_WAIT_SECONDS", 0.0)
    made = factory.make_harness(tmp_path, boot_templates=1)
    try:
        yield made
    finally:
        made.close()


def test_a_machine_with_layers_starts_from_the_template_of_one_without(with_templates: Harness) -> None:
    harness = with_templates
    address = harness.running_machine()
    run(harness, address, "echo kept > /kept; sync")
    store = harness.settings.machines_dir / FOLDER  # type: ignore[attr-defined]
    deadline = time.monotonic() + harness.boot_seconds
    while not list(store.glob("boot_*")):
        assert time.monotonic() < deadline, "no template was made"
        time.sleep(0.1)
    harness.driver.snapshot(address.machine_id, "s1")
    assert harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    spec = harness.spec(snapshot="s1")
    identity = harness.driver.prepare(spec)
    fork = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    for each in (address, fork):
        assert harness.driver.start(each.machine_id) is StartedFrom.TEMPLATE
        harness.driver.wait_ready(each.machine_id, harness.boot_seconds)
        assert run(harness, each, "cat /kept") == "kept"
    assert len(harness.driver.capacity().templates) == 1
    assert len(list(store.glob("snap_*"))) == 1
