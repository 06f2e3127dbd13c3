"""What confines the process of a real machine, read from /proc; below a folder that only root can search."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("libvirt")
from tests.vmbackend import libvirt_factory as factory
from vmbackend.driver import Boot, MachineSpec, MachineState
from vmbackend.libvirt.confinement import Confinement, processes_of
from vmbackend.libvirt.confinement_check import MachineProcess, find_processes, read_confinement
from vmbackend.libvirt.confinement_report import machine_lines
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.limits import CGROUPS, limits_for
from vmbackend.libvirt.reach import MOUNTS
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.starting import Confiner

pytestmark = pytest.mark.vm
MEMORY_MB = 160
# What a host may lack; machines run without it, and `make doctor` says so.
OPTIONAL = {"AppArmor"}


@pytest.fixture(scope="module")
def settings() -> Iterator[LibvirtSettings]:
    folder = Path(tempfile.mkdtemp(prefix="mvd", dir="/tmp"))
    made = factory.make_settings(folder)
    folder.chmod(0o700)
    factory.remove_if_killed(made)
    yield made
    factory.tear_down(made)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def driver(settings: LibvirtSettings) -> Iterator[LibvirtDriver]:
    made = LibvirtDriver(settings)
    made.open(lambda event: None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def machine(driver: LibvirtDriver, settings: LibvirtSettings) -> str:
    driver.prepare(_spec(settings, "ws_m1", 9))
    driver.start("ws_m1")
    driver.wait_ready("ws_m1", 90)
    return "ws_m1"


def _spec(settings: LibvirtSettings, name: str, number: int) -> MachineSpec:
    ip = str(settings.subnet.network_address + number)
    return MachineSpec(id=name, image=factory.IMAGE, cpus=1.5, memory_mb=MEMORY_MB, disk_mb=64, ip=ip, boot=Boot(name))


def _process(settings: LibvirtSettings, name: str) -> MachineProcess:
    (found,) = [p for p in find_processes(settings.instance, settings.machines_dir) if p.folder.name == name]
    return found


def _broken(settings: LibvirtSettings, name: str) -> dict[str, str]:
    lines = read_confinement(_process(settings, name), settings.uids)
    return {line.name: line.found for line in lines if not line.holds and line.name not in OPTIONAL}


def test_every_line_of_the_table_holds_for_a_running_machine(machine: str, settings: LibvirtSettings) -> None:
    assert _broken(settings, machine) == {}
    process = _process(settings, machine)
    uid = settings.uids.machine(str(settings.subnet.network_address + 9))
    assert process.status("Uid") == process.status("Gid") == [str(uid)] * 4
    assert {process.status(name)[0].strip("0") for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {""}
    assert str(MOUNTS) in process.read("cmdline")


def test_its_limits_are_those_of_its_size(machine: str, settings: LibvirtSettings) -> None:
    wanted = limits_for(1.5, MEMORY_MB, 64, emulated=True)
    found = {line.name: line.found for line in read_confinement(_process(settings, machine), settings.uids)}
    assert found["memory.max"] == f"{wanted.memory_mb} MiB"
    assert found["size of files"] == f"{wanted.file_mb} MiB"
    assert found["pids.max"].startswith(f"{wanted.pids},")
    assert found["CPU weight"] == str(wanted.cpu_weight)
    assert found["I/O weight"] == str(wanted.io_weight)


def test_the_doctor_shows_the_table(machine: str, settings: LibvirtSettings) -> None:
    lines = {line.name: line for line in machine_lines(settings.instance, settings.machines_dir, settings.uids)}
    assert lines["no capability"].holds
    assert lines["no capability"].found.startswith("1 of 1")
    assert not [line.name for line in lines.values() if line.needed and not line.holds]


def test_a_machine_is_confined_after_a_wake_too(machine: str, driver: LibvirtDriver, settings: LibvirtSettings) -> None:
    driver.sleep(machine)
    assert driver.state(machine) is MachineState.ASLEEP
    driver.start(machine)
    assert _broken(settings, machine) == {}


def test_memory_saved_by_an_earlier_version_continues_as_the_machines_own_user(
    driver: LibvirtDriver, settings: LibvirtSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(Confinement, "label", lambda *_: None)
        earlier.setattr(Confinement, "give_files", lambda *_: None)
        earlier.setattr(Confiner, "limit", lambda *_: None)
        earlier.setattr(Confinement, "path_for", lambda _, path: path)
        earlier.setattr(Confinement, "readable_file", lambda _, path: path)
        driver.prepare(_spec(settings, "ws_m2", 10))
        driver.start("ws_m2")
        driver.wait_ready("ws_m2", 90)
        assert _process(settings, "ws_m2").status("Uid") == ["0"] * 4
        assert {"uid and gid of its own", "libvirt's folder", "size of files"} <= _broken(settings, "ws_m2").keys()
        boot_log = driver.boot_log("ws_m2").read_bytes()
        driver.sleep("ws_m2")
    driver.start("ws_m2")
    assert driver.state("ws_m2") is MachineState.RUNNING
    assert _broken(settings, "ws_m2") == {}
    driver.resync_guest("ws_m2")  # the same guest answers: it did not boot again
    assert driver.boot_log("ws_m2").read_bytes().startswith(boot_log)
    driver.delete("ws_m2")


def test_a_deleted_machine_leaves_no_process_group_and_no_process(
    machine: str, driver: LibvirtDriver, settings: LibvirtSettings
) -> None:
    driver.delete(machine)
    assert processes_of(settings.uids.machine(str(settings.subnet.network_address + 9))) == []
    assert not [g for g in CGROUPS.glob("pids/machine*/*") if f"mvm-{settings.instance}-" in g.name]
