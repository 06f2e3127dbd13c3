"""Snapshots on a host without room, and of machines that change their memory without end."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from vmbackend.copies import AfterSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, CapacityExceeded, DeadlineExceeded, GuestUnreachable
from vmbackend.libvirt import convergence, flattening, snapshot_jobs, snapshots
from vmbackend.libvirt.store import FOLDER, Store

from .conftest import Harness, Machine
from .snapshot_scenes import content_of_snapshot, driver_of, files_of, run
from .test_sleep_contract import read_secret

pytestmark = pytest.mark.vm

# In the group that is not frozen, as root can.
UNSTOPPED = "grep -q cgroup /proc/mounts; echo $$ > /sys/fs/cgroup/cgroup.procs; "
# More memory than is written until its end in one pass.
RESTLESS = """
dd if=/dev/urandom of=/dev/shm/x bs=1M count=30 2>/dev/null
(while :; do cp /dev/shm/x /dev/shm/y; done) >/dev/null 2>&1 & echo $!
"""


@pytest.fixture
def machine(snapshot_machine: Machine) -> Machine:
    return snapshot_machine


def require_untouched(machine: Machine, former: set[str]) -> None:
    harness, address = machine.harness, machine.address
    files = files_of(harness, address.machine_id)
    assert {path.name for path in files.path.glob("data*")} == former
    assert list((files.path.parent / FOLDER).iterdir()) == []
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert harness.driver.inventory().snapshots == frozenset()
    run(harness, address, "echo alive > /alive; sync")


def disk_files(machine: Machine) -> set[str]:
    return {path.name for path in files_of(machine.harness, machine.address.machine_id).path.glob("data*")}


def test_without_room_nothing_is_written(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, address = machine.harness, machine.address
    driver, former = driver_of(harness), disk_files(machine)
    full = replace(driver._settings, disk_reserve_mb=1 << 40)
    monkeypatch.setattr(driver._snapshots, "_settings", full)
    monkeypatch.setattr(driver._flattener, "_settings", full)
    with pytest.raises(CapacityExceeded):
        driver.snapshot(address.machine_id, "s1")
    require_untouched(machine, former)
    monkeypatch.setattr(driver._snapshots, "_settings", driver._settings)
    driver.snapshot(address.machine_id, "s1")
    chain = files_of(harness, address.machine_id).read_chain()
    with pytest.raises(CapacityExceeded):
        driver.flatten(address.machine_id, 60.0)
    assert files_of(harness, address.machine_id).read_chain() == chain


@pytest.mark.parametrize("place", ["add_overlay", "link_layers", "publish"])
def test_a_disk_that_is_full_in_between_leaves_the_machine_running(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Nothing of the entry is left; what the machine has written above its former file stays."""
    harness, address = machine.harness, machine.address

    def full(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(*((Store, place) if place == "publish" else (snapshots, place)), full)
        with pytest.raises(BackendUnavailable):
            harness.driver.snapshot(address.machine_id, "s1")
    layers = files_of(harness, address.machine_id).read_chain().layers
    require_untouched(machine, {layer.file for layer in layers})


@pytest.mark.parametrize("name", ["_LATEST_SECONDS", "_STILL_SECONDS", "has_room"])
def test_a_machine_that_changes_its_memory_without_end_stands_still_for_the_rest(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
) -> None:
    """Emulated machines run meanwhile here, too: nothing reads the memory that is written."""
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    pid = run(harness, address, "echo kept > /kept; sync; " + UNSTOPPED + RESTLESS)
    monkeypatch.setattr(snapshots, "_tracks_changes", lambda _target: True)
    monkeypatch.setattr(convergence, "_SMALL_MB", 0)
    if name == "has_room":
        monkeypatch.setattr(driver_of(harness)._snapshots, "_has_room", lambda _record: False)
    else:
        monkeypatch.setattr(convergence, name, 0.2)
    harness.driver.snapshot(address.machine_id, "s1")
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    run(harness, address, f"kill {pid}")
    assert read_secret(harness, address) == secret
    assert content_of_snapshot(harness, "s1", "kept", tmp_path) == "kept"


@pytest.mark.parametrize("after", [AfterSnapshot.RESUME, AfterSnapshot.PAUSED])
def test_a_machine_whose_guest_does_not_stop_its_programs_goes_on_without_a_snapshot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, after: AfterSnapshot
) -> None:
    harness, address = machine.harness, machine.address

    def refuse(_files: object) -> None:
        raise GuestUnreachable("The machine does not stop its programs for the snapshot.")

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "freeze_programs", refuse)
        with pytest.raises(GuestUnreachable):
            harness.driver.snapshot(address.machine_id, "s1", after=after)
    require_untouched(machine, disk_files(machine))
    harness.driver.snapshot(address.machine_id, "s1")


def test_a_job_at_its_deadline_is_ended_and_the_machine_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hypervisor's job stands still here until it is ended."""
    harness, address = machine.harness, machine.address
    harness.driver.flatten(address.machine_id, 60.0)  # tests before may have left as many layers as a disk may have
    former, ended = disk_files(machine), threading.Event()

    def hang(*_: object) -> None:
        assert ended.wait(60)
        raise libvirt.libvirtError("operation aborted")

    with monkeypatch.context() as patched:
        patched.setattr(libvirt.virDomain, "snapshotCreateXML", hang)
        patched.setattr(libvirt.virDomain, "abortJob", lambda _: ended.set())
        patched.setattr(snapshot_jobs, "_JOB_SECONDS", 0.2)
        patched.setattr(snapshot_jobs, "_JOB_SECONDS_PER_MB", 0.0)
        with pytest.raises(BackendUnavailable):
            harness.driver.snapshot(address.machine_id, "s1")
    require_untouched(machine, former)


def test_a_flattening_at_its_deadline_leaves_the_former_disk(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, address = machine.harness, machine.address
    harness.driver.snapshot(address.machine_id, "s1")
    chain = files_of(harness, address.machine_id).read_chain()
    monkeypatch.setattr(flattening, "_is_ready", lambda _mirror: False)
    with pytest.raises(DeadlineExceeded):
        harness.driver.flatten(address.machine_id, 0.3)
    assert files_of(harness, address.machine_id).read_chain() == chain
    assert disk_files(machine) == {layer.file for layer in chain.layers}
    run(harness, address, "echo alive > /alive; sync")


@pytest.fixture
def small_host() -> Iterator[Harness]:
    """Its machines lie on a file system of 200 MiB."""
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    folder = Path(tempfile.mkdtemp(prefix="mvf", dir="/tmp"))
    folder.chmod(0o711)
    machines = folder / "m"
    machines.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200M", "tmpfs", str(machines)], check=True)
    harness = factory.make_harness(folder, machines_dir=machines, disk_reserve_mb=0)
    try:
        yield harness
    finally:
        harness.close()
        subprocess.run(["umount", "-l", str(machines)], check=False)


def test_a_job_that_fills_the_disk_leaves_the_machine_running_and_nothing_else(
    small_host: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = small_host.running_machine()
    run(small_host, address, "dd if=/dev/urandom of=/dev/shm/x bs=1M count=60 2>/dev/null; echo kept > /kept; sync")
    driver = driver_of(small_host)
    former = {path.name for path in files_of(small_host, address.machine_id).path.glob("data*")}
    with pytest.raises(CapacityExceeded):
        driver.snapshot(address.machine_id, "s1")
    monkeypatch.setattr(driver._snapshots, "_require_room", lambda *_, **__: None)
    filler = files_of(small_host, address.machine_id).path.parent / "filler"
    with filler.open("wb") as file:
        file.write(bytes(100 << 20))
    with pytest.raises(BackendUnavailable):
        driver.snapshot(address.machine_id, "s1")
    filler.unlink()
    require_untouched(Machine(small_host, address), former)
    assert run(small_host, address, "cat /kept") == "kept"
