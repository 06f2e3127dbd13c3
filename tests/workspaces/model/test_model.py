"""Random histories against the model of the state table. MODEL_EXAMPLES asks for more of them, and other ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from credits.ledger_check import Counts
from credits.models import Rate
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.run_extent import WHOLE
from tests.workspaces.model.copying import Copying
from tests.workspaces.model.history import History
from workspaces.charging.check import all_drifts
from workspaces.host import faults
from workspaces.models.workspace import RestartPolicy

pytestmark = pytest.mark.django_db(transaction=True)
MORE = int(os.environ.get("MODEL_EXAMPLES", "0"))


@pytest.fixture
def by_hand(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A host whose events the history delivers."""
    monkeypatch.setattr(faults, "fault_point", faults.fault_point)  # given back at the end
    vmhost.driver._report = lambda on_event: None  # type: ignore[method-assign]
    vmhost.restart()
    return vmhost


def run_histories(histories: Callable[[], RuleBasedStateMachine], number: int) -> None:
    run_state_machine_as_test(
        histories if MORE else seed(1)(histories),
        settings=settings(
            max_examples=MORE or number,
            stateful_step_count=25,
            database=None,
            # A failure is reported at once; more examples also look for the shortest history that fails.
            phases=list(Phase) if MORE else [Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.campaign
def test_random_histories_follow_the_state_table(api: Caller, by_hand: FakeHost) -> None:
    run_histories(lambda: History(by_hand, api.account), 200 if WHOLE else 60)


@pytest.mark.campaign
def test_random_histories_of_snapshots_follow_the_contract(api: Caller, stranger: Caller, by_hand: FakeHost) -> None:
    Rate.objects.filter(unit="snapshot_gb_hour").delete()
    Rate.objects.create(
        unit="snapshot_gb_hour", effective_from=datetime(2001, 1, 1, tzinfo=UTC), credits=Decimal("0.5")
    )
    run_histories(lambda: Copying(by_hand, api, stranger), 100 if WHOLE else 30)
    assert list(all_drifts(Counts())) == []


@pytest.mark.parametrize(("after", "planned"), [("resume", True), ("stop", False)])
def test_a_stopped_workspace_may_be_started_by_its_policy_after_its_snapshot(
    api: Caller, stranger: Caller, by_hand: FakeHost, after: str, planned: bool
) -> None:
    """Its host went down with it, and vmhost starts again during the snapshot: a restart is planned, unless the
    workspace is to be stopped after it."""
    history = Copying(by_hand, api, stranger)
    history.begin()
    history.host_goes_down_and_comes_back(rebooted=False)
    history.make_permanent(number=0, policy=RestartPolicy.ALWAYS)
    history.keep(number=0, name="", after=after, memory=None, dies=2, again=False)
    [key] = history.expected
    assert (history.row(key).restart_due_at is not None) == planned
    history.all_is_as_expected()
    history.teardown()


def test_a_restart_that_its_owner_called_off_is_not_planned_again(api: Caller, by_hand: FakeHost) -> None:
    history = History(by_hand, api.account)
    history.begin()
    history.make_permanent(number=0, policy=RestartPolicy.UNLESS_STOPPED)
    history.host_goes_down_and_comes_back(rebooted=False)
    [key] = history.expected
    assert history.row(key).restart_due_at is not None
    history.run_operation(number=0, name="stop", dies=0)
    history.vmhost_restarts()
    assert history.row(key).restart_due_at is None
    history.all_is_as_expected()
    history.teardown()
