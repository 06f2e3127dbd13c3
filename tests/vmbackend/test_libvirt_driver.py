"""What is the libvirt driver's own: libvirt's mock below it, and real machines whose driver dies."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmbackend.driver import Boot, Event, EventKind, MachineSpec, MachineState, StopReason
from vmbackend.errors import BackendUnavailable, MachineExited, MachineNotFound, NoRoom
from vmbackend.guest.kit import Kit

libvirt = pytest.importorskip("libvirt")

from vmbackend.libvirt import machines  # noqa: E402
from vmbackend.libvirt.channels import EVENTS_BYTES_MAX  # noqa: E402
from vmbackend.libvirt.driver import LibvirtDriver  # noqa: E402
from vmbackend.libvirt.events import Events  # noqa: E402
from vmbackend.libvirt.host import _lock_root  # noqa: E402
from vmbackend.libvirt.record import MachineDir, Status  # noqa: E402
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
def short():
    folder = Path(tempfile.mkdtemp(prefix="mvt", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def events():
    return []


@pytest.fixture
def driver(short, events, monkeypatch):
    kit = Kit(kernel=short / "vmlinux", initrd=short / "initrd", version="1")
    monkeypatch.setattr(machines, "find_kit", lambda _folder: kit)
    made = LibvirtDriver(_settings(short))
    made.open(events.append)
    yield made
    made.delete("m1")
    made.close()


def _until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_foreign_domains_are_never_in_the_inventory(driver):
    connection = driver._host.connection
    assert connection.numOfDomains() > 0
    assert driver.inventory().ids() == frozenset()
    driver.prepare(SPEC)
    assert driver.inventory().domains == {"m1": MachineState.OFF}


def test_a_machine_lives_through_its_states(driver, events):
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
    _until(lambda: Event("m1", EventKind.STOPPED, reason=StopReason.DESTROYED) in events)


def test_saved_memory_is_asleep_and_is_dropped_by_destroy(driver):
    driver.prepare(SPEC)
    driver.start("m1")
    driver._domains.find(driver._host.connection, "m1").managedSave()
    assert driver.state("m1") is MachineState.ASLEEP
    driver.destroy("m1")
    assert driver.state("m1") is MachineState.OFF


def test_a_machine_that_someone_else_undefined_is_lost(driver, events):
    driver.prepare(SPEC)
    driver._domains.find(driver._host.connection, "m1").undefine()
    _until(lambda: Event("m1", EventKind.STOPPED, reason=StopReason.LOST) in events)


def test_a_failed_first_preparation_leaves_nothing(driver, monkeypatch):
    def fails(connection, xml):
        raise BackendUnavailable("no")

    monkeypatch.setattr(machines.domain, "define", fails)
    with pytest.raises(BackendUnavailable):
        driver.prepare(SPEC)
    assert driver.inventory().ids() == frozenset()


def test_a_directory_that_a_death_left_is_inventory_and_can_be_deleted(driver):
    left = MachineDir(driver._settings.machines_dir, "m1")
    left.make()
    assert driver.inventory().directories == {"m1"}
    driver.delete("m1")
    assert driver.inventory().ids() == frozenset()


def test_memory_that_is_not_there_is_refused_before_the_start(driver):
    driver.prepare(replace(SPEC, memory_mb=1 << 30))
    with pytest.raises(NoRoom):
        driver.start("m1")
    assert driver.state("m1") is MachineState.OFF


def test_a_lost_connection_is_unavailable_and_comes_back_by_itself(driver):
    driver.prepare(SPEC)
    driver._host._lost(None, 0, None)
    with pytest.raises(BackendUnavailable):
        driver.state("m1")
    _until(lambda: driver._host._connection is not None)
    driver.inventory()


def test_a_root_in_use_is_told_in_a_sentence(short):
    (short / "run").mkdir()
    held = _lock_root(short, time.monotonic())
    try:
        with pytest.raises(BackendUnavailable, match="Another process"):
            _lock_root(short, time.monotonic() + 0.2)
    finally:
        held.close()
    _lock_root(short, time.monotonic()).close()


def test_paths_too_long_for_sockets_are_told_at_once(tmp_path):
    for changes in ({"uri": "qemu:///embed?root=/" + "x" * 60}, {"machines_dir": Path("/" + "x" * 70)}):
        with pytest.raises(BackendUnavailable, match="too long"):
            _settings(tmp_path, **changes).check()


def test_a_record_of_before_there_were_policies_is_read(tmp_path):
    files = MachineDir(tmp_path, "m1")
    files.path.mkdir()
    old = {"id": "m1", "ip": "10.0.0.5", "image": "sha256:x", "cpus": 1, "memory_mb": 128, "disk_mb": 64}
    (files.path / "machine.json").write_text(json.dumps({**old, "allow_internet": False}))
    record = files.read_record()
    assert record.network == NetworkPolicy(allow_internet=False)
    changed = replace(record, network=NetworkPolicy(False, ("example.com", "192.0.2.0/24"), (443,), (80,)))
    files.write_record(changed)
    assert files.read_record() == changed


class TestEvents:
    """The channels alone: this test plays QEMU and libvirt."""

    @pytest.fixture
    def told(self):
        return []

    @pytest.fixture
    def channels(self, told):
        made = Events(4096)
        made.start(told.append)
        yield made
        made.stop()

    @pytest.fixture
    def files(self, short):
        self.held = []
        made = MachineDir(short, "m1")
        made.make()
        yield made
        for descriptor in self.held:
            os.close(descriptor)

    def _say(self, files, data, name="events.out"):
        """Kept open, as QEMU keeps it: a pipe that nobody holds forgets."""
        descriptor = os.open(files.path / name, os.O_RDWR | os.O_NONBLOCK)
        self.held.append(descriptor)
        os.write(descriptor, data)

    def test_the_exit_code_is_told_before_the_stop(self, channels, files, told):
        channels.begin(files, wake=False)
        channels.started("m1")
        self._say(files, b"ready\nexit 7 exited\n")
        channels.stopped("m1", StopReason.SHUTDOWN)
        _until(lambda: len(told) == 3)
        assert [event.kind for event in told] == [EventKind.READY, EventKind.MAIN_EXITED, EventKind.STOPPED]
        assert told[1].exit_code == 7
        _until(lambda: not files.read_status().running)

    def test_what_was_said_without_a_driver_is_heard_by_the_next(self, channels, files, told):
        files.write_status(Status(running=True))
        self._say(files, b"ready\n")
        channels.attach(files)
        channels.wait_ready("m1", time.monotonic() + 5)
        assert files.read_status().ready

    def test_a_stop_of_the_former_run_does_not_end_the_new_one(self, channels, files, told):
        channels.begin(files, wake=False)
        channels.stopped("m1", StopReason.DESTROYED)
        channels.started("m1")
        _until(lambda: told)
        assert channels.status("m1").running

    def test_who_waits_learns_of_the_end_at_once(self, channels, files):
        channels.begin(files, wake=False)
        channels.started("m1")
        threading.Timer(0.1, channels.stopped, ("m1", StopReason.CRASHED)).start()
        started = time.monotonic()
        with pytest.raises(MachineExited):
            channels.wait_ready("m1", started + 30)
        assert time.monotonic() - started < 5

    def test_a_reset_is_no_clean_end(self, channels, files, told):
        channels.begin(files, wake=False)
        channels.started("m1")
        channels.was_reset("m1")
        channels.stopped("m1", StopReason.SHUTDOWN)
        _until(lambda: told)
        assert told[0].reason is StopReason.PANICKED

    def test_nonsense_on_the_port_is_not_an_event(self, channels, files, told):
        channels.begin(files, wake=False)
        channels.started("m1")
        self._say(files, b"\xff\x00\nexit\nexit -1\nexit 99999 x\nready now\n" + b"x" * 2000 + b"\nready\n")
        _until(lambda: told)
        assert told == [Event("m1", EventKind.READY)]

    def test_a_guest_that_floods_the_port_is_not_heard_any_more(self, channels, files, told):
        channels.begin(files, wake=False)
        descriptor = os.open(files.path / "events.out", os.O_RDWR | os.O_NONBLOCK)
        sent, deadline = 0, time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                sent += os.write(descriptor, b"y\n" * 4096)
            except BlockingIOError:
                time.sleep(0.01)
        os.close(descriptor)
        assert sent <= 4 * EVENTS_BYTES_MAX
        assert told == []

    def test_a_receiver_that_fails_does_not_silence_the_rest(self, short):
        told = []

        def receive(event):
            told.append(event)
            raise RuntimeError

        channels = Events(4096)
        channels.start(receive)
        try:
            channels.stopped("a", StopReason.CRASHED)
            channels.stopped("b", StopReason.CRASHED)
            _until(lambda: len(told) == 2)
        finally:
            channels.stop()


_OTHER_PROCESS = """
    import os, signal, sys
    from pathlib import Path
    from tests.vmbackend.libvirt_factory import IMAGE, make_settings
    from vmbackend.driver import Boot, MachineSpec
    from vmbackend.libvirt.driver import LibvirtDriver

    folder, instance, subnet, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    import ipaddress
    settings = make_settings(
        folder, uri=f"qemu:///embed?root={folder}/r", instance=instance, subnet=ipaddress.ip_network(subnet)
    )
    driver = LibvirtDriver(settings)
    driver.open(lambda event: print("event", event.kind, event.reason, event.exit_code, flush=True))
    ip = str(settings.subnet.network_address + 5)
    if step.startswith("start"):
        command = ("/bin/sh", "-c", "sleep 6; exit 9")
        driver.prepare(
            MachineSpec(id="m1", image=IMAGE, cpus=1, memory_mb=192, disk_mb=64, ip=ip, boot=Boot("h", cmd=command))
        )
        driver.start("m1")
        if step == "start-and-wait":
            driver.wait_ready("m1", 60)
        os.kill(os.getpid(), signal.SIGKILL)
    if step == "wait":
        driver.wait_ready("m1", 60)
    import time
    time.sleep(float(sys.argv[5]))
    print("state", driver.state("m1"), flush=True)
    os._exit(0)
"""


@pytest.mark.vm
class TestDeath:
    """Each step is a process of its own, as vmhost is."""

    @pytest.fixture
    def host(self, short):
        from .libvirt_factory import free_subnet, make_settings, tear_down

        subnet = free_subnet()
        instance = f"d{os.getpid() % 0xFFFFF:05x}"
        yield lambda *step: self._step(short, instance, subnet, *step)
        tear_down(make_settings(short, instance=instance, subnet=subnet))
        short.mkdir(exist_ok=True)

    def _step(self, folder, instance, subnet, step, seconds="0.5"):
        code = textwrap.dedent(_OTHER_PROCESS)
        command = [sys.executable, "-c", code, str(folder), instance, str(subnet), step, seconds]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout

    def _kill(self, folder):
        from .libvirt_factory import qemu_pids

        (pid,) = qemu_pids(folder / "m")
        os.kill(pid, signal.SIGKILL)

    def test_a_driver_killed_during_a_boot_is_followed_by_one_that_sees_it_ready(self, host):
        host("start")
        said = host("wait")
        assert "event ready" in said
        assert "state running" in said

    def test_a_machine_killed_without_a_driver_is_crashed(self, host, short):
        host("start-and-wait")
        self._kill(short)
        said = host("look")
        assert "event stopped crashed" in said
        assert "state off" in said

    def test_an_exit_code_that_nobody_heard_is_told_before_the_stop(self, host):
        host("start-and-wait")
        time.sleep(9)
        said = host("look", "4")
        assert said.index("event main_exited None 9") < said.index("event stopped shutdown")
        assert "state off" in said


def test_a_machine_without_files_is_not_found(driver):
    driver.prepare(SPEC)
    (driver._settings.machines_dir / "m1" / "machine.json").unlink()
    with pytest.raises(MachineNotFound):
        driver.start("m1")
