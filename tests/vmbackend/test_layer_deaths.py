"""A vmhost that dies while the chain of a disk changes, with the machine's process and without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.run_extent import campaign_after
from vmbackend.copies import CopyPace
from vmbackend.driver import MachineState
from vmbackend.libvirt import disk_making, disks, domain, flattening, layers, snapshots, store
from vmbackend.libvirt.layers import Layers
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.snapshot_jobs import SnapshotJob
from vmbackend.libvirt.store import FOLDER, Store

from .conftest import Machine
from .snapshot_scenes import content_of_snapshot, files_of, run
from .test_sleep_contract import wake

pytestmark = pytest.mark.vm

SNAPSHOT_STEPS: list[tuple[Any, str]] = [
    (snapshots, "add_overlay"),
    (MachineDir, "write_record"),
    (SnapshotJob, "run"),
    (snapshots, "freeze_file"),
    (Layers, "define"),
    (snapshots, "link_layers"),
    (snapshots, "snapshot_needs"),
    (store, "sync_file"),
    (Store, "publish"),
]
FLATTEN_STEPS: list[tuple[Any, str]] = [
    (flattening, "_create_raw"),
    (flattening, "_await_ready"),
    (flattening, "convert_layers"),
    (disks, "sync_file"),
    (MachineDir, "write_record"),
    (Layers, "define"),
    (layers, "remove_others"),
]
TAKE_STEPS: list[tuple[Any, str]] = [
    (disk_making, "link_layers"),
    (disk_making, "add_overlay"),
    (MachineDir, "write_record"),
    (Layers, "define"),
    (layers, "remove_others"),
]


@pytest.fixture
def machine(real_machine: Machine) -> Iterator[Machine]:
    with real_machine.opened():
        yield real_machine
        for name in real_machine.harness.driver.inventory().snapshots:
            real_machine.harness.driver.remove_snapshot(name)


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], *, after: bool) -> Iterator[None]:
    """The process ends before or after the first call of a step: nothing that it would clean up then happens."""
    owner, name = step
    real = getattr(owner, name)
    died = []

    def die(*arguments: Any, **options: Any) -> Any:
        if died:
            return real(*arguments, **options)
        died.append(name)
        if after:
            real(*arguments, **options)
        for place in (layers, flattening, snapshots):
            if hasattr(place, "abort_copy"):
                patched.setattr(place, "abort_copy", lambda _target: None)
        patched.setattr(Layers, "settle", lambda *_: None)
        patched.setattr(domain, "resume_domain", lambda _target: None)
        patched.setattr(store, "remove_tree", lambda _path: True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with suppress(KeyboardInterrupt):
            yield
    if not died:
        pytest.skip("not a step from this state")


def require_whole(machine: Machine, expected: str, tmp_path: Path) -> None:
    """After the next open nothing is left beside the chain and complete snapshots, and the disk has its content."""
    harness, address = machine.harness, machine.address
    harness.reopen_driver()
    files = files_of(harness, address.machine_id)
    chain = files.read_chain()
    assert {path.name for path in files.path.glob("data*")} == {layer.file for layer in chain.layers}
    kept = {path.name for path in (files.path.parent / FOLDER).iterdir()}
    assert kept == {f"snap_{name}" for name in harness.driver.inventory().snapshots}
    for name in harness.driver.inventory().snapshots:
        assert content_of_snapshot(harness, name, "kept", tmp_path) == expected
    state = harness.driver.state(address.machine_id)
    if state is MachineState.PAUSED:
        harness.driver.resume(address.machine_id)
    elif state is MachineState.ASLEEP:
        wake(harness, address)
    elif state is MachineState.OFF:
        harness.driver.start(address.machine_id)
        harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert run(harness, address, "cat /kept; echo later > /kept; sync; cat /kept") == f"{expected}\nlater"


def bring_to(machine: Machine, state: MachineState) -> None:
    harness, address = machine.harness, machine.address
    if state is MachineState.ASLEEP:
        harness.driver.sleep(address.machine_id)
    elif state is MachineState.OFF:
        assert harness.driver.shutdown(address.machine_id, harness.boot_seconds)


def kill(machine: Machine) -> None:
    with suppress(ValueError, ProcessLookupError):
        machine.harness.kill(machine.harness.driver, machine.address.machine_id)


@dataclass(frozen=True)
class Death:
    """`killed`: the machine's process ends, too."""

    state: MachineState
    owner: Any
    step: str
    after: bool
    killed: bool = False


def deaths(states: list[tuple[MachineState, bool]], steps: list[tuple[Any, str]], *, always: int) -> list[Any]:
    """All combinations; `always` of them are not of a campaign only, spread over the steps and states."""
    found = [
        Death(state, *step, after, killed) for after in (True, False) for step in steps for state, killed in states
    ]
    spread = found[:: max(1, len(found) // always)]
    return campaign_after(len(spread), spread + [each for each in found if each not in spread])


RUNNING = [(MachineState.RUNNING, False), (MachineState.RUNNING, True)]
OFF, ASLEEP = (MachineState.OFF, False), (MachineState.ASLEEP, False)


@pytest.mark.parametrize("death", deaths([*RUNNING, OFF, ASLEEP], SNAPSHOT_STEPS, always=11), ids=str)
def test_a_death_in_a_snapshot_leaves_a_whole_chain(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    run(machine.harness, machine.address, "echo kept > /kept; sync")
    bring_to(machine, death.state)
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        machine.harness.driver.snapshot(machine.address.machine_id, "s1")
    kill(machine) if death.killed else None
    require_whole(machine, "kept", tmp_path)


@pytest.mark.parametrize("death", deaths([*RUNNING, OFF], FLATTEN_STEPS, always=8), ids=str)
def test_a_death_in_a_flattening_leaves_one_of_both_disks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    run(machine.harness, machine.address, "echo kept > /kept; sync")
    machine.harness.driver.snapshot(machine.address.machine_id, "s1")
    bring_to(machine, death.state)
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        machine.harness.driver.flatten(machine.address.machine_id, 60.0)
    kill(machine) if death.killed else None
    require_whole(machine, "kept", tmp_path)


@pytest.mark.parametrize("death", deaths([*RUNNING, OFF], FLATTEN_STEPS, always=4), ids=str)
def test_a_death_in_a_slow_copy_of_a_stale_disk_leaves_one_that_is_copied_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    driver, key = machine.harness.driver, machine.id
    run(machine.harness, machine.address, "echo kept > /kept; sync")
    driver.snapshot(key, "s1", memory=False)
    driver.remove_snapshot("s1")
    bring_to(machine, death.state)
    assert set(driver.stale_disks()) == {key}
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        driver.flatten(key, 60.0, CopyPace(bytes_per_second=64 << 20))
    kill(machine) if death.killed else None
    require_whole(machine, "kept", tmp_path)
    machine.harness.driver.flatten(key, 60.0)
    assert machine.harness.driver.stale_disks() == {}
    assert run(machine.harness, machine.address, "cat /kept") == "later"


@pytest.mark.parametrize("death", deaths([OFF], TAKE_STEPS, always=3), ids=str)
def test_a_death_while_a_disk_is_taken_leaves_the_old_one_or_the_new_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    run(machine.harness, machine.address, "echo kept > /kept; sync")
    machine.harness.driver.snapshot(machine.address.machine_id, "s1")
    bring_to(machine, death.state)
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        machine.harness.driver.take_disk(machine.address.machine_id, "s1")
    require_whole(machine, "kept", tmp_path)
