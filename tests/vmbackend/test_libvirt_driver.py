"""Behaviour specific to the libvirt driver, with libvirt's mock hypervisor."""

from __future__ import annotations

import ipaddress
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmbackend.driver import Boot, Event, EventKind, MachineSpec, MachineState, StopReason
from vmbackend.errors import BackendUnavailable, CapacityExceeded, MachineNotFound
from vmbackend.guest.kit import KERNEL_ARGS, Kit

libvirt = pytest.importorskip("libvirt")

from vmbackend.libvirt import provisioner  # noqa: E402
from vmbackend.libvirt.connection import _lock_root  # noqa: E402
from vmbackend.libvirt.driver import LibvirtDriver  # noqa: E402
from vmbackend.libvirt.record import MachineDir  # noqa: E402
from vmbackend.libvirt.settings import LibvirtSettings  # noqa: E402
from vmbackend.policy import NetworkPolicy  # noqa: E402

SPEC = MachineSpec(
    id="m1", image="sha256:x", cpus=1.5, memory_mb=64, disk_mb=64, ip="10.9.0.5", boot=Boot(hostname="h")
)


def _settings(tmp_path, **changes):
    image = SimpleNamespace(rootfs=tmp_path / "base")
    fields = {
        "uri": "test:///default",
        "machines_dir": tmp_path / "m",
        "instance": "abcdef",
        "subnet": ipaddress.ip_network("10.9.0.0/24"),
        "kit_dir": tmp_path / "kit",
        "control_public_key": "ssh-ed25519 AAAA",
        "images": SimpleNamespace(get=lambda digest: image),
        "memory_reserve_mb": 0,
        "disk_reserve_mb": 0,
    }
    return LibvirtSettings(**(fields | changes))


@pytest.fixture
def events():
    return []


@pytest.fixture
def driver(short, events, monkeypatch):
    kit = Kit(kernel=short / "vmlinux", initrd=short / "initrd", version="1")
    monkeypatch.setattr(provisioner, "find_kit", lambda _folder: kit)
    made = LibvirtDriver(_settings(short))
    made.open(events.append)
    yield made
    made.delete("m1")
    made.close()


def _wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_emulated_machine_is_given_the_frequency_of_its_tsc_and_fixed_addresses(driver, monkeypatch):
    known = driver._provisioner
    monkeypatch.setattr(known._tsc, "khz", lambda: 2596132)  # of the host
    arguments = {}
    for kind in ("qemu", "kvm"):
        known.domain_type = kind
        arguments[kind] = known._kernel_args().removeprefix(KERNEL_ARGS)
    assert arguments == {"qemu": " norandmaps tsc_early_khz=2596132", "kvm": ""}


def test_foreign_domains_are_never_in_the_inventory(driver):
    connection = driver._libvirt.connection
    assert connection.numOfDomains() > 0
    assert driver.inventory().ids() == frozenset()
    driver.prepare(SPEC)
    assert driver.inventory().domains == {"m1": MachineState.OFF}


def test_a_machine_passes_through_its_states(driver, events):
    driver.prepare(SPEC)
    driver.start("m1")
    driver.start("m1")
    assert driver.state("m1") is MachineState.RUNNING
    driver.pause("m1")
    assert driver.state("m1") is MachineState.PAUSED
    driver.start("m1")
    assert driver.state("m1") is MachineState.RUNNING
    driver.destroy("m1")
    assert driver.state("m1") is MachineState.OFF
    _wait_until(lambda: Event("m1", EventKind.STOPPED, reason=StopReason.DESTROYED) in events)


def test_saved_memory_is_asleep_and_is_dropped_by_destroy(driver):
    driver.prepare(SPEC)
    driver.start("m1")
    driver._domains.find(driver._libvirt.connection, "m1").managedSave()
    assert driver.state("m1") is MachineState.ASLEEP
    driver.destroy("m1")
    assert driver.state("m1") is MachineState.OFF


def test_a_machine_undefined_externally_is_reported_as_lost(driver, events):
    driver.prepare(SPEC)
    driver._domains.find(driver._libvirt.connection, "m1").undefine()
    _wait_until(lambda: Event("m1", EventKind.STOPPED, reason=StopReason.LOST) in events)


def test_a_failed_first_prepare_leaves_nothing_behind(driver, monkeypatch):
    def fails(connection, xml):
        raise BackendUnavailable("no")

    monkeypatch.setattr(provisioner.domain, "define_domain", fails)
    with pytest.raises(BackendUnavailable):
        driver.prepare(SPEC)
    assert driver.inventory().ids() == frozenset()


def test_an_orphaned_directory_is_in_the_inventory_and_can_be_deleted(driver):
    orphan = MachineDir(driver._settings.machines_dir, "m1")
    orphan.create()
    assert driver.inventory().directories == {"m1"}
    driver.delete("m1")
    assert driver.inventory().ids() == frozenset()


def test_a_machine_larger_than_the_free_memory_is_refused_before_the_start(driver):
    driver.prepare(replace(SPEC, memory_mb=1 << 30))
    with pytest.raises(CapacityExceeded):
        driver.start("m1")
    assert driver.state("m1") is MachineState.OFF


def test_a_lost_connection_raises_and_is_reopened_automatically(driver):
    driver.prepare(SPEC)
    driver._libvirt._lost(None, 0, None)
    with pytest.raises(BackendUnavailable):
        driver.state("m1")
    _wait_until(lambda: driver._libvirt._connection is not None)
    driver.inventory()


def test_a_libvirt_root_in_use_raises_backend_unavailable(short):
    (short / "run").mkdir()
    lock = _lock_root(short, time.monotonic())
    try:
        with pytest.raises(BackendUnavailable, match="Another process"):
            _lock_root(short, time.monotonic() + 0.2)
    finally:
        lock.close()
    _lock_root(short, time.monotonic()).close()


def test_paths_too_long_for_sockets_are_refused(tmp_path):
    for changes in ({"uri": "qemu:///embed?root=/" + "x" * 60}, {"machines_dir": Path("/" + "x" * 70)}):
        with pytest.raises(BackendUnavailable, match="too long"):
            _settings(tmp_path, **changes).check()


def test_a_record_without_a_network_policy_is_read(tmp_path):
    files = MachineDir(tmp_path, "m1")
    files.path.mkdir()
    old = {"id": "m1", "ip": "10.0.0.5", "image": "sha256:x", "cpus": 1, "memory_mb": 128, "disk_mb": 64}
    (files.path / "machine.json").write_text(json.dumps({**old, "allow_internet": False}))
    record = files.read_record()
    assert record.network == NetworkPolicy(allow_internet=False)
    changed = replace(record, network=NetworkPolicy(False, ("example.com", "192.0.2.0/24"), (443,), (80,)))
    files.write_record(changed)
    assert files.read_record() == changed


def test_a_machine_without_files_is_not_found(driver):
    driver.prepare(SPEC)
    (driver._settings.machines_dir / "m1" / "machine.json").unlink()
    with pytest.raises(MachineNotFound):
        driver.start("m1")
