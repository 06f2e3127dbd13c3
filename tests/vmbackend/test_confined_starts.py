"""Starts and wakes of machines that cannot be confined, and limits that a host lacks; without a hypervisor."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

pytest.importorskip("libvirt")
import libvirt

from tests.vmbackend import mock_factory
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, SavedMemoryUnusable
from vmbackend.libvirt import limits
from vmbackend.libvirt.disks import overlay_overhead_mb
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_memory import SavedMemory
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.starting import Confiner, StartHooks
from vmbackend.uids import UidRange

REFUSED = BackendUnavailable("Not confined.")


def _refuse(*_arguments: object) -> None:
    raise REFUSED


def test_a_wake_that_cannot_be_confined_leaves_the_machine_asleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = mock_factory.make_harness(tmp_path, monkeypatch)
    try:
        address = harness.sleeping_machine()
        with monkeypatch.context() as patched:
            patched.setattr(Confiner, "limit", _refuse)
            with pytest.raises(BackendUnavailable, match="Not confined"):
                harness.driver.start(address.machine_id)
        assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
        harness.driver.start(address.machine_id)
        assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    finally:
        harness.close()


@pytest.mark.parametrize("resume", [LibvirtDriver.resume, LibvirtDriver.start])
def test_a_paused_machine_that_this_driver_has_not_confined_does_not_run_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: Callable[[LibvirtDriver, str], None]
) -> None:
    harness = mock_factory.make_harness(tmp_path, monkeypatch)
    try:
        address = harness.running_machine()
        harness.driver.pause(address.machine_id)
        monkeypatch.setattr(harness.driver._confiner, "_limited", set())  # as of a driver that was just opened
        with monkeypatch.context() as patched:
            patched.setattr(Confiner, "limit", _refuse)
            with pytest.raises(BackendUnavailable, match="Not confined"):
                resume(harness.driver, address.machine_id)
        assert harness.driver.state(address.machine_id) is MachineState.PAUSED
        resume(harness.driver, address.machine_id)
        assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    finally:
        harness.close()


def test_a_machine_that_this_driver_has_confined_is_resumed_without_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = mock_factory.make_harness(tmp_path, monkeypatch)
    try:
        address = harness.running_machine()
        harness.driver.pause(address.machine_id)
        monkeypatch.setattr(Confiner, "limit", _refuse)
        harness.driver.resume(address.machine_id)
        assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    finally:
        harness.close()


def test_memory_that_a_failed_wake_left_is_dropped_before_the_machine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = mock_factory.make_harness(tmp_path, monkeypatch)
    try:
        address = harness.running_machine()
        harness.driver.pause(address.machine_id)
        memory = SavedMemory(MachineDir(tmp_path / "m", address.machine_id))
        memory.path.write_bytes(b"LibvirtQemudSave" + b"\0" * 100)
        memory.write_checksum()
        harness.driver.resume(address.machine_id)
        assert not memory.exists
    finally:
        harness.close()


@pytest.fixture
def files(tmp_path: Path) -> MachineDir:
    made = MachineDir(tmp_path, "one")
    made.path.mkdir()
    made.memory.write_bytes(b"LibvirtQemudSave" + b"\0" * 100)
    return made


@pytest.mark.parametrize("error", [libvirt.libvirtError("broken"), SystemError("not UTF-8")])
@pytest.mark.parametrize("checksum", ["right", "wrong", "none"])
def test_memory_that_cannot_be_described_is_never_restored(files: MachineDir, checksum: str, error: Exception) -> None:
    if checksum != "none":
        SavedMemory(files).write_checksum()
    if checksum == "wrong":
        files.memory.write_bytes(b"LibvirtQemudSave" + b"\1" * 100)
    connection = Mock()
    connection.saveImageGetXMLDesc.side_effect = error
    target = Mock(**{"isActive.return_value": False, "hasManagedSaveImage.return_value": False})
    expected = BackendUnavailable if checksum == "right" else SavedMemoryUnusable
    with pytest.raises(expected):
        SavedStateManager(SimpleNamespace(is_test=False)).restore_memory(connection, target, files, Mock())
    connection.restoreFlags.assert_not_called()
    assert SavedMemory(files).exists is (checksum == "right")


def test_memory_that_a_host_without_room_could_not_load_is_kept(files: MachineDir) -> None:
    """Its process cannot start without an inode for its log; the next attempt may find one."""
    SavedMemory(files).write_checksum()
    connection = Mock()
    connection.restoreFlags.side_effect = libvirt.libvirtError("process exited: No space left on device")
    target = Mock(**{"isActive.return_value": False, "hasManagedSaveImage.return_value": False})
    hooks = Mock(**{"confined_xml.return_value": None})
    with pytest.raises(BackendUnavailable):
        SavedStateManager(SimpleNamespace(is_test=False)).restore_memory(connection, target, files, hooks)
    assert SavedMemory(files).exists


def _managed(target: Mock, limit: Mock) -> Mock:
    """All calls of a wake from a managed image, in their order."""
    calls = Mock()
    target.managedSaveGetXMLDesc.return_value = "<domain/>"
    target.state.return_value = [libvirt.VIR_DOMAIN_PAUSED, 0]
    for name in ("createWithFlags", "resume", "destroy"):
        calls.attach_mock(getattr(target, name), name)
    calls.attach_mock(limit, "limit")
    return calls


def test_a_managed_image_is_restored_with_stopped_cpus_and_confined_before_they_run(tmp_path: Path) -> None:
    target, limit, port = Mock(), Mock(), Mock()
    calls = _managed(target, limit)
    calls.attach_mock(port.connect, "connect")
    hooks = StartHooks(port=port, limit=limit, confined_xml=lambda _xml: None)
    SavedStateManager(SimpleNamespace(is_test=False)).restore_memory(Mock(), target, MachineDir(tmp_path, "one"), hooks)
    paused = call.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    assert calls.mock_calls == [paused, call.limit(target), call.connect(), call.resume()]


def test_a_managed_image_that_cannot_be_confined_does_not_run(tmp_path: Path) -> None:
    target, limit = Mock(), Mock(side_effect=REFUSED)
    calls = _managed(target, limit)
    hooks = StartHooks(port=Mock(), limit=limit, confined_xml=lambda _xml: None)
    with pytest.raises(BackendUnavailable, match="Not confined"):
        SavedStateManager(SimpleNamespace(is_test=False)).restore_memory(
            Mock(), target, MachineDir(tmp_path, "one"), hooks
        )
    assert call.destroy() in calls.mock_calls
    assert call.resume() not in calls.mock_calls


def _limits(folder: Path) -> limits.Limits:
    uids = UidRange(5000, IPv4Network("10.9.0.0/24"))
    return limits.Limits(SimpleNamespace(uids=uids, instance="abcdef", machines_dir=folder))  # type: ignore[arg-type]


def _record(machine_id: str) -> SimpleNamespace:
    return SimpleNamespace(id=machine_id, ip="10.9.0.5", cpus=1, memory_mb=512, disk_mb=64)


def test_limits_that_a_host_lacks_are_logged_once_for_each_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "limit_file_size", lambda *_: None)
    monkeypatch.setattr(limits, "processes_of", lambda _uid: [])
    made = _limits(tmp_path)
    with caplog.at_level(logging.WARNING):
        for name in ("one", "two", "one"):
            made.apply(Mock(), _record(name), emulated=False)
    found = sorted(record.getMessage().split(":")[0] for record in caplog.records)
    assert found == [
        f"machine {name} runs without a limit of {what}" for name in ("one", "two") for what in ("memory", "processes")
    ]


@pytest.mark.parametrize("swap", [True, False])
def test_a_machine_uses_no_swap_where_the_host_can_forbid_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, swap: bool
) -> None:
    group = tmp_path / "machine-qemu-one.scope"
    group.mkdir()
    for name in ("memory.max", "pids.max", *(["memory.swap.max"] if swap else [])):
        (group / name).write_text("max\n")
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "limit_file_size", lambda *_: None)
    monkeypatch.setattr(limits, "processes_of", lambda _uid: [77])
    monkeypatch.setattr(limits, "machine_group", lambda *_: group)
    _limits(tmp_path).apply(Mock(), _record("one"), emulated=False)
    wanted = limits.limits_for(1, 512, 64, emulated=False)
    found = {path.name: path.read_text().strip() for path in group.iterdir()}
    assert found == {"memory.max": str(wanted.memory_mb << 20), "pids.max": str(wanted.pids)} | (
        {"memory.swap.max": "0"} if swap else {}
    )


@pytest.mark.parametrize(("memory", "disk"), [(512, 64), (512, 10240)])
def test_the_largest_file_is_the_disk_or_the_saved_memory(memory: int, disk: int) -> None:
    found = limits.limits_for(1, memory, disk, emulated=False)
    assert found.file_mb == max(disk + overlay_overhead_mb(disk), found.memory_mb)
    assert found.file_mb >= memory + 64  # what saved memory holds besides the guest's


@pytest.mark.host
def test_a_process_writes_no_larger_file_than_its_limit(tmp_path: Path) -> None:
    uid = 0x70FF0011
    user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    script = "read go; exec head -c 3145728 /dev/zero"
    with (tmp_path / "disk").open("wb") as disk, subprocess.Popen(
        [*user, "sh", "-c", script], stdin=subprocess.PIPE, stdout=disk, stderr=subprocess.DEVNULL
    ) as process:  # fmt: skip
        while (Path("/proc") / str(process.pid)).stat().st_uid != uid:
            assert process.poll() is None
        limits.limit_file_size(uid, 2)
        process.communicate(b"go\n", timeout=120)
    assert process.returncode != 0
    assert (tmp_path / "disk").stat().st_size == 2 << 20
    with pytest.raises(BackendUnavailable, match="ended"):
        limits.limit_file_size(uid, 2)
