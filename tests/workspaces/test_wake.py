"""Waking: by start, resume or a request; with the memory kept, the clock right, and never stuck."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from common.errors import InvalidState
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.injected import Scene
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from workspaces import power
from workspaces.models import Workspace
from workspaces.power import ensure_running
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
IDLE = 120


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A permanent workspace with an idle policy."""
    return fault_cases.idle_machines(vmhost, api.account, IDLE)


def is_later(row: Workspace, seconds: float = IDLE) -> bool:
    """Whether it is looked at again after about that time."""
    assert row.idle_due_at is not None
    return abs((row.idle_due_at - timezone.now()).total_seconds() - seconds) < 10


@pytest.mark.parametrize("wake", [power.workspace_start, power.workspace_resume, power.workspace_wake])
def test_a_wake_keeps_the_memory_and_resyncs_the_guest_first(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch, wake: Any
) -> None:
    started = timezone.now() - timedelta(hours=1)
    row = machine(Status.SLEEPING, started_at=started)
    seen: list[bool] = []
    scene = Scene(vmhost, monkeypatch, "wake", "complete", row.pk)
    scene.before(lambda: seen.append(vmhost.driver.resync_count(row.pk) == 1 and not Workspace.objects.get().ready))
    wake(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.ready, row.started_at, seen) == ("running", True, started, [True])
    assert row.uptime() >= 3600
    assert is_later(row)


def test_requests_that_come_together_wake_it_once(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.SLEEPING)
    vmhost.hold_tasks()
    first = power.workspace_wake(workspace=row, actor="edge")
    assert first is not None
    assert power.workspace_wake(workspace=row, actor="edge") == first
    vmhost.release_tasks()
    vmhost.settle()
    assert power.workspace_wake(workspace=row, actor="edge") is None


def test_a_request_wakes_nothing_that_was_stopped(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    with pytest.raises(InvalidState):
        power.workspace_wake(workspace=machine(Status.STOPPED), actor="edge")


def test_memory_that_cannot_be_loaded_leads_to_a_reported_cold_start(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(Status.SLEEPING, started_at=timezone.now() - timedelta(hours=1))
    vmhost.driver.corrupt_saved_memory(row.pk)
    power.workspace_wake(workspace=row, actor="edge")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.ready, row.uptime() < 60) == ("running", True, True)
    assert fault_cases.activity_mentions(row.pk, "could not be used")
    assert fault_cases.inconsistencies(vmhost, row.pk) == []


def test_a_cold_start_that_an_attempt_that_died_began_has_its_own_start_time(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine(Status.SLEEPING, started_at=timezone.now() - timedelta(hours=1))
    vmhost.driver.corrupt_saved_memory(row.pk)
    Scene(vmhost, monkeypatch, "wake", "wait_ready", row.pk).before(lambda: (_ for _ in ()).throw(vmhost.begin_death()))
    power.workspace_wake(workspace=row, actor="edge")
    vmhost.settle_across_deaths()
    row.refresh_from_db()
    assert (row.status, row.uptime() < 60) == ("running", True)
    assert fault_cases.activity_mentions(row.pk, "could not be used")


def test_a_wake_without_room_leaves_it_asleep(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.SLEEPING)
    vmhost.driver.fail_next("start", CapacityExceeded("The host has not enough free memory."))
    power.workspace_wake(workspace=row, actor="edge")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.error_code, fault_cases.inconsistencies(vmhost, row.pk)) == ("sleeping", "no_room", [])


def test_a_guest_whose_clock_cannot_be_set_wakes_and_it_is_reported(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(Status.SLEEPING)
    vmhost.driver.fail_next("resync_guest", BackendUnavailable("The agent is silent."))
    power.workspace_wake(workspace=row, actor="edge")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, fault_cases.activity_mentions(row.pk, "clock could not be set")) == ("running", True)


def test_a_sleep_that_was_to_be_stopped_and_could_not_wakes_with_a_start_time(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(Status.SLEEPING)
    vmhost.driver.fail_next("shutdown", BackendUnavailable("Away."), times=3)
    power.workspace_stop(workspace=row, actor="owner")
    vmhost.settle()
    power.workspace_wake(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.is_running) == ("running", True)


def test_a_request_that_comes_while_it_falls_asleep_wakes_it(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine()
    vmhost.driver.delays = {"sleep": 0.3}
    power.workspace_sleep(workspace=row, actor="test")
    assert ensure_running(Workspace.objects.get(pk=row.pk), 10) is True
    vmhost.settle()
    assert vmhost.driver.state(row.pk) is MachineState.RUNNING


def test_a_request_does_not_wait_longer_than_it_may_for_one_that_falls_asleep(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine()
    vmhost.hold_tasks()
    power.workspace_sleep(workspace=row, actor="test")
    assert ensure_running(Workspace.objects.get(pk=row.pk), 0.1) is False
