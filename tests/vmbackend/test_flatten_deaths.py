"""A vmhost that dies while layers are copied into one disk, with the machine and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run_extent import campaign_after

from .conftest import Machine
from .layer_deaths import FLATTEN_STEPS, OFF, RUNNING, Death, bring_to, deaths, dying, kill, require_whole
from .snapshot_scenes import run

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("death", campaign_after(*deaths([*RUNNING, OFF], FLATTEN_STEPS, always=8)), ids=str)
def test_a_death_in_a_flattening_leaves_one_of_both_disks(
    snapshot_machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    run(snapshot_machine.harness, snapshot_machine.address, "echo kept > /kept; sync")
    snapshot_machine.harness.driver.snapshot(snapshot_machine.address.machine_id, "s1")
    bring_to(snapshot_machine, death.state)
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        snapshot_machine.harness.driver.flatten(snapshot_machine.address.machine_id, 60.0)
    kill(snapshot_machine) if death.killed else None
    require_whole(snapshot_machine, "kept", tmp_path)
