"""Random histories against the model of the state table. MODEL_EXAMPLES asks for more of them, and other ones."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.run_extent import WHOLE
from tests.workspaces.model.history import History
from workspaces.host import faults

pytestmark = pytest.mark.django_db(transaction=True)
MORE = int(os.environ.get("MODEL_EXAMPLES", "0"))


@pytest.mark.campaign
def test_random_histories_follow_the_state_table(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "fault_point", faults.fault_point)  # given back at the end
    vmhost.driver._report = lambda on_event: None  # type: ignore[method-assign]
    vmhost.restart()
    histories = lambda: History(vmhost, api.account)  # noqa: E731
    run_state_machine_as_test(
        histories if MORE else seed(1)(histories),
        settings=settings(
            max_examples=MORE or (200 if WHOLE else 60),
            stateful_step_count=25,
            database=None,
            # A failure is reported at once; more examples also look for the shortest history that fails.
            phases=list(Phase) if MORE else [Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
