"""Machines that sleep on a snapshot's memory, over libvirt's mock hypervisor: what each way to fail leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.fakehost import Died
from vmbackend.driver import MachineState
from vmbackend.errors import (
    BackendUnavailable,
    CapacityExceeded,
    CopyUnproven,
    InvalidMachineState,
    SavedMemoryUnusable,
    SnapshotIncompatible,
)
from vmbackend.libvirt import loads, moved
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.moved_memory import MovedMemory
from vmbackend.libvirt.record import Layer, MachineDir
from vmbackend.libvirt.snapshot_store import PREFIX, SnapshotStore
from vmbackend.power import StartedFrom

from .conftest import Harness, make_harness
from .snapshot_scenes import driver_of, files_of
from .test_received_snapshots import NEEDS, STREAM, XML, encode_beginning

pytest.importorskip("libvirt")
MIB = 1 << 20
ID = "one"
Load = Callable[..., None]


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(moved, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(SnapshotStore, "compare", lambda *_: ())
    made = make_harness("mock", tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def driver(harness: Harness) -> LibvirtDriver:
    made = driver_of(harness)
    store = made._snapshot_store.store
    with store.writing() as aside:
        (aside / "memory").write_bytes(encode_beginning(XML, b"") + STREAM)
        with (aside / "disk-0.raw").open("wb") as disk:
            disk.truncate(64 * MIB)
        store.publish(aside, PREFIX + ID, NEEDS, (Layer("disk-0.raw", "raw"),), 64)
    return made


@pytest.fixture
def files(harness: Harness, driver: LibvirtDriver) -> MachineDir:
    """A machine that sleeps on the snapshot, which is gone."""
    spec = harness.spec(snapshot=ID)
    driver.prepare(spec)
    driver.sleep_on(spec.id, ID)
    driver.remove_snapshot(ID)
    return files_of(harness, spec.id)


def loading(monkeypatch: pytest.MonkeyPatch, driver: LibvirtDriver, end: Load) -> list[str]:
    """Let loads write to the disk, and end so; return the files that they wrote."""
    written: list[str] = []

    def load(_entry: Any, _target: Any, files: MachineDir, _hooks: Any, *, proven: Callable[[], None]) -> None:
        written.append(files.top_disk().name)
        files.top_disk().write_bytes(b"by the guest")
        end(proven)

    monkeypatch.setattr(driver._power, "load", load)
    return written


def raising(error: BaseException, cause: BaseException | None = None) -> Load:
    def end(_proven: Callable[[], None]) -> None:
        raise error from cause

    return end


def require_taken(files: MachineDir, written: list[str]) -> None:
    """Require the disk as it was taken: nothing that a guest wrote is in it."""
    chain = files.read_chain()
    assert chain.taken == ID
    assert len(chain.layers) == 2
    assert not set(written) & {path.name for path in files.path.glob("data*")}


def test_a_machine_that_sleeps_on_it_is_asleep_and_wakes_once(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver.state(files.id) is MachineState.ASLEEP
    assert driver.inventory().saved == {files.id}
    driver.sleep_on(files.id, ID)
    with pytest.raises(InvalidMachineState):
        driver.flatten(files.id, 1.0)
    loading(monkeypatch, driver, lambda proven: proven())
    assert driver.start(files.id) is StartedFrom.MEMORY
    assert files.read_chain().taken == ""
    assert [path.name for path in files.path.glob("memory*")] == []
    assert driver.state(files.id) is MachineState.OFF  # the mock of a load has no process
    assert driver.start(files.id) is StartedFrom.BOOT
    assert files.top_disk().read_bytes() == b"by the guest"


@pytest.mark.parametrize(
    "error",
    [
        BackendUnavailable("The machine's process does not run as its user."),
        SnapshotIncompatible("The file could not be read just then."),
        InvalidMachineState("Something else is done to it."),
        OSError("no space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_cause_that_may_pass_leaves_it_asleep_with_its_disk(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    written = loading(monkeypatch, driver, raising(error))
    for _ in range(2):
        with pytest.raises(BackendUnavailable if isinstance(error, OSError) else type(error)):
            driver.start(files.id)
        assert driver.state(files.id) is MachineState.ASLEEP
        require_taken(files, written)
    assert len(set(written)) == 2


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (CopyUnproven("It does not answer."), None),
        (BackendUnavailable("It could not be loaded."), libvirt.libvirtError("of another device")),
        (SnapshotIncompatible("It is of other devices."), ValueError("other places")),
        (BackendUnavailable("It could not be loaded."), SystemError("bytes")),
    ],
    ids=["unproven", "hypervisor", "devices", "binding"],
)
def test_memory_that_can_never_be_loaded_is_dropped_and_the_disk_is_not(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: Exception
) -> None:
    written = loading(monkeypatch, driver, raising(error, cause))
    with pytest.raises(SavedMemoryUnusable, match="guest kit"):
        driver.start(files.id)
    assert len(written) == 2
    assert driver.state(files.id) is MachineState.OFF
    assert driver.inventory().saved == frozenset()
    require_taken(files, written)
    assert driver.start(files.id) is StartedFrom.BOOT


@pytest.mark.parametrize("damage", ["memory", "what it is"])
def test_damaged_memory_is_dropped(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    loading(monkeypatch, driver, raising(SnapshotIncompatible("It has changed.")))
    if damage == "memory":
        files.memory.chmod(0o600)
        files.memory.write_bytes(files.memory.read_bytes() + b"x")
    else:
        files.moved.write_bytes(b"[]")
    with pytest.raises(SavedMemoryUnusable):
        driver.start(files.id)
    assert driver.state(files.id) is MachineState.OFF


def test_a_death_while_it_is_loaded_costs_nothing(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = loading(monkeypatch, driver, raising(Died()))
    with pytest.raises(Died):
        driver.start(files.id)
    assert driver.state(files.id) is MachineState.ASLEEP
    assert files.read_chain().taken == ""
    made = driver.snapshot(files.id, "two")
    assert made.memory
    assert driver._snapshot_store.find_entry("two").needs == NEEDS
    require_clean = [layer.file for layer in driver._snapshot_store.find_entry("two").layers]
    assert len(require_clean) == 2
    assert not any(b"guest" in (driver.snapshot_folder("two") / name).read_bytes()[:100] for name in require_clean)
    driver.remove_snapshot("two")
    loading(monkeypatch, driver, lambda proven: proven())
    assert driver.start(files.id) is StartedFrom.MEMORY
    assert written[0] not in {path.name for path in files.path.glob("data*")}


def test_a_machine_whose_disk_became_one_file_meanwhile_keeps_it_too(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot flattens a disk of many files first, and may fail after that."""
    target, record = driver._find_machine(files.id)
    driver._flattener.flatten(driver._libvirt.connection, target, files, record, 60.0)
    assert files.read_chain().is_flat
    flat = files.top_disk().name
    loading(monkeypatch, driver, raising(BackendUnavailable("not now")))
    with pytest.raises(BackendUnavailable):
        driver.start(files.id)
    chain = files.read_chain()
    assert (chain.taken, chain.layers[0].file, len(chain.layers)) == (ID, flat, 2)
    assert b"guest" not in (files.path / flat).read_bytes()[:100]


def test_without_room_on_the_disk_it_stays_asleep(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading(monkeypatch, driver, raising(Died()))
    with pytest.raises(Died):
        driver.start(files.id)

    def full(*_arguments: object) -> None:
        raise CapacityExceeded("The host lacks space.")

    with monkeypatch.context() as patch:
        patch.setattr("vmbackend.libvirt.disks.require_free_space", full)
        with pytest.raises(CapacityExceeded):
            driver.start(files.id)
    assert driver.state(files.id) is MachineState.ASLEEP
    loading(monkeypatch, driver, lambda proven: proven())
    assert driver.start(files.id) is StartedFrom.MEMORY


def test_a_process_that_has_proven_itself_outlives_a_death_before_the_end_of_its_start(
    driver: LibvirtDriver, files: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []
    monkeypatch.setattr(loads.domain, "destroy_domain", ended.append)
    files.loading.touch()
    loads.end_unfinished_load("nobody's", files)
    files.loading.touch()
    MovedMemory(files).mark_woken()
    loads.end_unfinished_load("the machine's", files)
    assert ended == ["nobody's"]
    assert not files.loading.exists()
    assert driver.state(files.id) is MachineState.OFF
    MovedMemory(files).forget()
    assert [path.name for path in files.path.glob("memory*")] == []


def test_a_sleep_that_died_before_its_memory_was_there_is_no_sleep(
    harness: Harness, driver: LibvirtDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = harness.spec(snapshot=ID)
    driver.prepare(spec)

    def die(*_arguments: object, **_options: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("vmbackend.libvirt.moved_memory.os.link", die)
        with pytest.raises(Died):
            driver.sleep_on(spec.id, ID)
    assert driver.state(spec.id) is MachineState.OFF
    driver.sleep_on(spec.id, ID)
    assert driver.state(spec.id) is MachineState.ASLEEP
    driver.destroy(spec.id)
    assert driver.state(spec.id) is MachineState.OFF
    assert [path.name for path in files_of(harness, spec.id).path.glob("memory*")] == []
