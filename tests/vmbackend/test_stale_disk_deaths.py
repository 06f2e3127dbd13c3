"""A vmhost that dies while a stale disk is copied slowly, with the machine and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run_extent import campaign_after
from vmbackend.copies import CopyPace

from .conftest import Machine
from .layer_deaths import FLATTEN_STEPS, OFF, RUNNING, Death, bring_to, deaths, dying, kill, require_whole
from .snapshot_scenes import run

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("death", campaign_after(*deaths([*RUNNING, OFF], FLATTEN_STEPS, always=4)), ids=str)
def test_a_death_in_a_slow_copy_of_a_stale_disk_leaves_one_that_is_copied_again(
    snapshot_machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: Death
) -> None:
    driver, key = snapshot_machine.harness.driver, snapshot_machine.id
    run(snapshot_machine.harness, snapshot_machine.address, "echo kept > /kept; sync")
    driver.snapshot(key, "s1", memory=False)
    driver.remove_snapshot("s1")
    bring_to(snapshot_machine, death.state)
    assert set(driver.stale_disks()) == {key}
    with dying(monkeypatch, (death.owner, death.step), after=death.after):
        driver.flatten(key, 60.0, CopyPace(bytes_per_second=64 << 20))
    kill(snapshot_machine) if death.killed else None
    require_whole(snapshot_machine, "kept", tmp_path)
    snapshot_machine.harness.driver.flatten(key, 60.0)
    assert snapshot_machine.harness.driver.stale_disks() == {}
    assert run(snapshot_machine.harness, snapshot_machine.address, "cat /kept") == "later"
