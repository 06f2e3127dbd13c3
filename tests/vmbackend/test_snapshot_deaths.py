"""A vmhost that dies while a snapshot is made or a disk is taken from one, with the machine and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.run_extent import campaign_after
from vmbackend.libvirt import disk_making, layers, snapshots, store
from vmbackend.libvirt.layers import Layers
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.snapshot_jobs import SnapshotJob
from vmbackend.libvirt.store import Store

from .conftest import Machine
from .layer_deaths import ASLEEP, OFF, RUNNING, Death, bring_to, deaths, dying, kill, require_whole
from .snapshot_scenes import run

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
TAKE_STEPS: list[tuple[Any, str]] = [
    (disk_making, "link_layers"),
    (disk_making, "add_overlay"),
    (MachineDir, "write_record"),
    (Layers, "define"),
    (layers, "remove_others"),
]


@pytest.mark.parametrize("death", campaign_after(*deaths([*RUNNING, OFF, ASLEEP], SNAPSHOT_STEPS, always=11)), ids=str)
def test_a_death_in_a_snapshot_leaves_a_whole_chain(
    snapshot_machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    run(snapshot_machine.harness, snapshot_machine.address, "echo kept > /kept; sync")
    bring_to(snapshot_machine, death.state)
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        snapshot_machine.harness.driver.snapshot(snapshot_machine.address.machine_id, "s1")
    kill(snapshot_machine) if death.killed else None
    require_whole(snapshot_machine, "kept", tmp_path)


@pytest.mark.parametrize("death", campaign_after(*deaths([OFF], TAKE_STEPS, always=3)), ids=str)
def test_a_death_while_a_disk_is_taken_leaves_the_old_one_or_the_new_one(
    snapshot_machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    run(snapshot_machine.harness, snapshot_machine.address, "echo kept > /kept; sync")
    snapshot_machine.harness.driver.snapshot(snapshot_machine.address.machine_id, "s1")
    bring_to(snapshot_machine, death.state)
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        snapshot_machine.harness.driver.take_disk(snapshot_machine.address.machine_id, "s1")
    require_whole(snapshot_machine, "kept", tmp_path)
