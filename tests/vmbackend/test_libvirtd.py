"""The libvirt driver against a libvirtd, as a production host has it, instead of the embedded one."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmbackend import libvirt_factory as factory
from tests.vmbackend import libvirtd
from vmbackend.driver import Boot, Event, MachineSpec, MachineState
from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.confinement import Confinement
from vmbackend.libvirt.confinement_check import find_processes, read_confinement
from vmbackend.libvirt.driver import LibvirtDriver

pytestmark = pytest.mark.vm


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mvd", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_a_machine_survives_a_killed_libvirtd(folder: Path) -> None:
    settings = factory.make_settings(folder, uri=libvirtd.uri(folder))
    factory.remove_if_killed(settings)
    Confinement(settings).open(kvm=False)
    with libvirtd.running_libvirtd(folder) as daemon:
        driver = LibvirtDriver(settings)
        events: list[Event] = []
        try:
            driver.open(events.append)
            ip = str(settings.subnet.network_address + 9)
            driver.prepare(
                MachineSpec(
                    id="ws_one", image=factory.IMAGE, cpus=1, memory_mb=160, disk_mb=64, ip=ip, boot=Boot("one")
                )
            )
            driver.start("ws_one")
            driver.wait_ready("ws_one", 90)
            pids = factory.qemu_pids(settings.machines_dir)
            (process,) = find_processes(settings.instance, settings.machines_dir)
            lines = read_confinement(process, settings.uids)
            assert {line.name for line in lines if not line.holds} <= {"AppArmor"}
            before = driver.samples(["ws_one"])["ws_one"]
            daemon.kill()
            daemon.wait()
            _wait_until_lost(driver)
            daemon = libvirtd.start(folder)
            _wait_for_state(driver, MachineState.RUNNING)
            assert factory.qemu_pids(settings.machines_dir) == pids
            after = driver.samples(["ws_one"])["ws_one"]
            assert after.generation == before.generation != ""
            assert after.cpu_time_ns >= before.cpu_time_ns
            assert driver.shutdown("ws_one", 120)
            driver.delete("ws_one")
            assert driver.inventory().ids() == frozenset()
        finally:
            driver.close()
            daemon.kill()
            daemon.wait()
            factory.tear_down(settings)


def _wait_until_lost(driver: LibvirtDriver) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            driver.state("ws_one")
        except BackendUnavailable:
            return
        time.sleep(0.1)
    raise AssertionError("the loss of libvirtd was not noticed")


def _wait_for_state(driver: LibvirtDriver, wanted: MachineState) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            if driver.state("ws_one") is wanted:
                return
        except BackendUnavailable:
            pass
        time.sleep(0.2)
    raise AssertionError(f"the machine did not become {wanted}")
