"""Disks that consist of more files than anything needs, and slow copies of them that are given up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vmbackend.copies import CopyPace
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, DeadlineExceeded
from vmbackend.libvirt.layers import Layers, is_stale
from vmbackend.libvirt.process import run_until_done
from vmbackend.libvirt.record import Chain, Layer, MachineDir, Record
from vmbackend.policy import NetworkPolicy

from .conftest import Harness, Machine
from .snapshot_scenes import driver_of, files_of, load_fork, run
from .test_sleep_contract import wake

NEVER = CopyPace()
# Each time into the same blocks.
FILL = "dd if=/dev/urandom of=/kept bs=1M count=8 conv=notrunc 2> /dev/null; sync; sha256sum /kept"
SUM = "sha256sum /kept"


def run_sleep(seconds: float, timeout: float, pace: CopyPace) -> None:
    run_until_done(["sleep", str(seconds)], name="sleep", timeout=timeout, descriptors=(), give_up=pace.give_up)


def test_a_tool_that_is_given_up_or_late_has_ended() -> None:
    run_sleep(0.1, 60.0, NEVER)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        run_sleep(100, 0.2, NEVER)
    with pytest.raises(DeadlineExceeded):
        run_sleep(100, 60.0, CopyPace(lambda: time.monotonic() > began + 1.0))
    assert time.monotonic() - began < 30


def test_a_tool_that_fails_or_is_missing_is_an_error() -> None:
    for command in (["false"], ["no-such-program"]):
        with pytest.raises(BackendUnavailable):
            run_until_done(command, name="tool", timeout=60.0, descriptors=(), give_up=NEVER.give_up)


def test_a_change_that_comes_after_a_settlement_or_a_removal_changes_nothing(tmp_path: Path) -> None:
    files, chains = MachineDir(tmp_path, "m1"), Layers(lambda path: path)
    files.create()
    record = Record("m1", "10.0.0.2", "image", 1, 128, 64, NetworkPolicy(allow_internet=True))
    flat = replace(record, chain=Chain((Layer("data-1.raw", "raw"),)))
    files.write_record(record)
    files.data_disk.touch()
    with pytest.raises(BackendUnavailable):
        chains.change(None, None, files, flat)
    assert files.read_record() == record
    assert files.data_disk.exists()
    (files.path / "data-1.raw").touch()
    (files.path / "machine.json").unlink()
    with pytest.raises(BackendUnavailable):
        chains.change(None, None, files, flat)
    assert files.read_record() is None


def test_a_disk_is_stale_once_the_last_other_link_of_its_lower_files_is_gone(tmp_path: Path) -> None:
    files = MachineDir(tmp_path, "m1")
    files.create()
    chain = Chain((Layer("data.raw", "raw"), Layer("data-1.qcow2", "qcow2"), Layer("data-2.qcow2", "qcow2")))
    assert not is_stale(files, chain), "it is changed right now"
    for layer in chain.layers:
        (files.path / layer.file).touch()
    assert is_stale(files, chain)
    assert not is_stale(files, Chain())
    (tmp_path / "kept").hardlink_to(files.path / "data-1.qcow2")
    assert not is_stale(files, chain)
    (tmp_path / "kept").unlink()
    assert is_stale(files, chain)


@pytest.fixture
def machine(real_machine: Machine) -> Iterator[Machine]:
    with real_machine.opened():
        # Tests before may have left layers.
        real_machine.harness.driver.flatten(real_machine.id, 120.0)
        yield real_machine
        for name in real_machine.harness.driver.inventory().snapshots:
            real_machine.harness.driver.remove_snapshot(name)


def surplus(machine: Machine) -> int:
    """Bytes that the disk occupies and its guest does not see."""
    files = files_of(machine.harness, machine.id)
    sizes = [(files.path / layer.file).stat().st_blocks * 512 for layer in files.read_chain().layers]
    return sum(sizes) - max(sizes)


def bring_to(machine: Machine, state: MachineState) -> None:
    driver = machine.harness.driver
    if state is MachineState.PAUSED:
        driver.pause(machine.id)
    elif state is MachineState.OFF:
        assert driver.shutdown(machine.id, machine.harness.boot_seconds)


def bring_back(machine: Machine) -> None:
    driver, state = machine.harness.driver, machine.harness.driver.state(machine.id)
    if state is MachineState.PAUSED:
        driver.resume(machine.id)
    elif state is MachineState.OFF:
        wake(machine.harness, machine.address)


@pytest.mark.vm
@pytest.mark.parametrize("state", [MachineState.RUNNING, MachineState.PAUSED, MachineState.OFF])
def test_the_bytes_of_a_deleted_snapshot_are_freed(machine: Machine, state: MachineState) -> None:
    harness, driver = machine.harness, machine.harness.driver
    run(harness, machine.address, FILL)
    driver.snapshot(machine.id, "s1", memory=False)
    content = run(harness, machine.address, FILL)
    assert driver.stale_disks() == {}, "the snapshot needs what is below"
    driver.remove_snapshot("s1")
    assert set(driver.stale_disks()) == {machine.id}
    assert surplus(machine) > 8 << 20
    before = driver.disk_allocations()[machine.id]
    bring_to(machine, state)
    driver.flatten(machine.id, 120.0, CopyPace(bytes_per_second=64 << 20))
    assert driver.state(machine.id) is state
    assert driver.stale_disks() == {}
    assert files_of(harness, machine.id).read_chain().is_flat
    assert driver.disk_allocations()[machine.id] < before - (7 << 20)
    bring_back(machine)
    assert run(harness, machine.address, SUM) == content


@pytest.mark.vm
def test_a_sleeping_machine_is_left(machine: Machine) -> None:
    harness, driver = machine.harness, machine.harness.driver
    driver.snapshot(machine.id, "s1", memory=False)
    driver.remove_snapshot("s1")
    driver.sleep(machine.id)
    assert driver.stale_disks() == {}
    wake(harness, machine.address)
    driver.resync_guest(machine.id)
    assert set(driver.stale_disks()) == {machine.id}


@pytest.mark.vm
@pytest.mark.parametrize("state", [MachineState.RUNNING, MachineState.OFF])
def test_a_copy_that_is_given_up_leaves_the_disk_as_it_was(machine: Machine, state: MachineState) -> None:
    """At a MiB a second it would take longer than it is given."""
    harness, driver = machine.harness, machine.harness.driver
    content = run(harness, machine.address, FILL)
    driver.snapshot(machine.id, "s1", memory=False)
    driver.remove_snapshot("s1")
    bring_to(machine, state)
    files = files_of(harness, machine.id)
    chain, began = files.read_chain(), time.monotonic()
    with pytest.raises(DeadlineExceeded):
        driver.flatten(machine.id, 120.0, CopyPace(lambda: time.monotonic() > began + 2.0, 1 << 20))
    assert files.read_chain() == chain
    assert {path.name for path in files.path.glob("data*")} == {layer.file for layer in chain.layers}
    driver.flatten(machine.id, 120.0)
    bring_back(machine)
    assert run(harness, machine.address, SUM) == content


@pytest.mark.vm
def test_what_a_copy_shares_is_stale_for_neither(libvirt_harness: Harness) -> None:
    driver, parent = libvirt_harness.driver, libvirt_harness.running_machine()
    driver.snapshot(parent.machine_id, "s1")
    copy = load_fork(libvirt_harness, "s1")
    driver.remove_snapshot("s1")
    assert driver.stale_disks() == {}
    driver.delete(copy.machine_id)
    assert set(driver.stale_disks()) == {parent.machine_id}


@pytest.mark.vm
def test_a_copy_keeps_the_policy_that_is_applied_meanwhile(machine: Machine) -> None:
    driver, files = driver_of(machine.harness), files_of(machine.harness, machine.id)
    driver.snapshot(machine.id, "s1", memory=False)
    driver.remove_snapshot("s1")
    record = files.read_record()
    assert record is not None
    changed = type(record.network)(allow_internet=not record.network.allow_internet)
    applied: list[bool] = []

    def apply() -> bool:
        if not applied:
            driver.set_network(machine.id, changed)
            applied.append(True)
        return False

    driver.flatten(machine.id, 120.0, CopyPace(apply))
    after = files.read_record()
    assert after is not None
    assert (after.network, after.chain.is_flat) == (changed, True)
    driver.set_network(machine.id, record.network)
    assert not is_stale(files, after.chain)
