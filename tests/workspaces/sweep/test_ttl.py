"""A TTL that expires, from every state and while an operation is in progress."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from config.celery_settings import beat_schedule
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.rows import make_host, make_workspace
from tests.workspaces.sweep.sweeping import AFTER_TTL, HOUR, RESTING, WITHOUT_MACHINE, ago, status_of, sweep_and_settle
from vmbackend.errors import BackendUnavailable
from workspaces import power
from workspaces.host.sweep import due_workspaces, expire_ttl, sweep_due
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import TtlAction
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("action", list(TtlAction))
@pytest.mark.parametrize("status", RESTING + WITHOUT_MACHINE)
def test_the_ttl_does_its_action_once_from_every_state(
    api: Caller, vmhost: FakeHost, machine: Callable[..., Workspace], action: TtlAction, status: Status
) -> None:
    fields = {"ttl_action": action, "ttl_expires_at": ago()}
    if status in RESTING:
        row = machine(status, **fields)
    else:
        row = make_workspace(api.account, host=make_host(), status=status, started_at=None, **fields)
    sweep_and_settle(vmhost)
    ends = AFTER_TTL[action].get(status, status)
    assert (status_of(row), fault_cases.inconsistencies(vmhost, row.pk)) == (ends, [])
    assert not due_workspaces(timezone.now()).exists()
    if ends is None or ends is not status:
        assert Activity.objects.filter(workspace_id=row.pk, actor="ttl", detail__startswith="The time to live").exists()
    if ends is not None:
        row.refresh_from_db()
        assert (row.user_requested_stop, row.ttl_expires_at) == (False, None)
    assert sweep_and_settle(vmhost) == 0


def test_what_expired_while_the_control_plane_was_down_is_done_at_the_first_sweep(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    rows = [machine(ttl_action=action, ttl_expires_at=ago(HOUR)) for action in TtlAction]
    vmhost.restart()
    assert sweep_and_settle(vmhost) == 3
    assert [status_of(row) for row in rows] == ["stopped", "paused", None]


def test_the_sweep_runs_every_second() -> None:
    """So a TTL fires within two seconds of its time."""
    assert beat_schedule["sweep-due"]["schedule"].seconds == 1


def test_nothing_happens_before_its_time(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(ttl_expires_at=timezone.now() + timedelta(seconds=60))
    assert sweep_and_settle(vmhost) == 0
    assert status_of(row) == "running"


def test_a_renewal_between_the_query_and_the_action_wins(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(ttl_action=TtlAction.REMOVE, ttl_expires_at=ago())
    found = due_workspaces(timezone.now()).get()
    lifecycle.workspace_ping(workspace=row, actor="owner")
    assert expire_ttl(found) is False
    vmhost.settle()
    assert status_of(row) == "running"
    assert sweep_and_settle(vmhost) == 0


def test_a_ttl_that_is_over_while_an_operation_goes_on_is_done_after_it(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(ttl_expires_at=ago())
    vmhost.hold_tasks()
    power.workspace_pause(workspace=row, actor="owner")
    assert sweep_due() == 0
    vmhost.release_tasks()
    vmhost.settle()
    assert status_of(row) == "paused"
    sweep_and_settle(vmhost)
    assert status_of(row) == "stopped"


@pytest.mark.parametrize(("action", "method"), [(TtlAction.STOP, "shutdown"), (TtlAction.PAUSE, "pause")])
def test_an_action_that_fails_is_done_later(
    vmhost: FakeHost, machine: Callable[..., Workspace], action: TtlAction, method: str
) -> None:
    row = machine(ttl_action=action, ttl_expires_at=ago())
    vmhost.driver.fail_next(method, BackendUnavailable("Away."), times=3)
    sweep_and_settle(vmhost)
    assert status_of(row) == "running"
    row.refresh_from_db()
    assert row.ttl_expires_at is not None
    assert row.ttl_expires_at > timezone.now() + timedelta(seconds=30), "not at every sweep"
    Workspace.objects.filter(ttl_expires_at__isnull=False).update(ttl_expires_at=ago())
    sweep_and_settle(vmhost)
    assert status_of(row) == AFTER_TTL[action][Status.RUNNING]


def test_a_workspace_that_becomes_permanent_while_its_ttl_action_fails_has_no_end(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(ttl_action=TtlAction.STOP, ttl_expires_at=ago())
    vmhost.driver.fail_next("shutdown", BackendUnavailable("Away."), times=3)
    vmhost.hold_tasks()
    assert sweep_due() == 1
    lifecycle.make_permanent(workspace=row, actor="owner")
    vmhost.release_tasks()
    vmhost.settle()
    assert status_of(row) == "running"
    row.refresh_from_db()
    assert row.ttl_expires_at is None
    assert sweep_and_settle(vmhost) == 0


def test_a_workspace_that_becomes_permanent_while_it_restarts_has_no_end(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(ttl_expires_at=timezone.now() + HOUR)
    vmhost.driver.delays = {"shutdown": 0.2}
    power.workspace_restart(workspace=row, actor="owner")
    lifecycle.make_permanent(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.mode, row.ttl_expires_at) == ("running", "permanent", None)


def test_a_ttl_that_changes_while_a_workspace_starts_is_the_new_one(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(Status.STOPPED)
    vmhost.driver.delays = {"start": 0.2}
    power.workspace_start(workspace=row, actor="owner")
    lifecycle.change_ttl(workspace=row, actor="owner", ttl=7200)
    vmhost.settle()
    row.refresh_from_db()
    assert row.ttl_expires_at is not None
    assert row.ttl_expires_at > timezone.now() + HOUR
