"""Random histories of files beside a model of dicts (history.py): counters and rows are equal to it after each step."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from cdn import pools
from tests.cdn.history import FileHistory
from tests.run_extent import campaign_after

pytestmark = pytest.mark.django_db

STEPS = int(os.environ.get("STEPS", "0")) or 500
SEED = int(os.environ.get("SEED", "0")) or 1
LENGTH = 50


class CheckedHistory(FileHistory):
    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "owner"):
            self.check()


@pytest.mark.parametrize("part", campaign_after(1, range(3)))
def test_counters_rows_and_model_agree_after_each_step(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(pools, "month_of", pools.month_of)
    machine = seed(SEED + part)(CheckedHistory)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=max(1, STEPS // LENGTH),
            stateful_step_count=LENGTH,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
