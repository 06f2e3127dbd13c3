"""The expiry of the saved memory of sleeping workspaces."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.sweep.sweeping import HOUR, ago, status_of, sweep_and_settle
from vmbackend.errors import BackendUnavailable
from workspaces import power
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import Mode
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_memory_is_kept_as_long_as_the_policy_says(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(mode=Mode.PERMANENT, ttl_seconds=None, suspend_after=120, stop_after=3600)
    power.workspace_sleep(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert row.memory_expires_at is not None
    assert abs(row.memory_expires_at - timezone.now() - HOUR) < timedelta(seconds=10)
    assert sweep_and_settle(vmhost) == 0
    Workspace.objects.update(memory_expires_at=ago())
    assert sweep_and_settle(vmhost) == 1
    row.refresh_from_db()
    assert (row.status, row.user_requested_stop, row.memory_expires_at) == ("stopped", False, None)
    assert "slept longer" in Activity.objects.filter(workspace_id=row.pk, action="stopped").get().detail
    assert fault_cases.inconsistencies(vmhost, row.pk) == []


def test_memory_without_a_limit_is_kept(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(suspend_after=120, stop_after=0)
    power.workspace_sleep(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.memory_expires_at) == ("sleeping", None)


def test_memory_that_cannot_be_dropped_now_is_dropped_later(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(Status.SLEEPING, stop_after=3600, memory_expires_at=ago())
    vmhost.driver.fail_next("shutdown", BackendUnavailable("Away."), times=3)
    sweep_and_settle(vmhost)
    assert status_of(row) == "sleeping"
    sweep_and_settle(vmhost)
    assert status_of(row) == "stopped"


def test_memory_that_a_wake_used_is_not_waited_for(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.SLEEPING, stop_after=3600, memory_expires_at=timezone.now() + HOUR)
    power.workspace_wake(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.memory_expires_at) == ("running", None)
