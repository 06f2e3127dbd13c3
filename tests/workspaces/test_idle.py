"""Idle sleep: what counts as use, what holds it off, and how a sleeping workspace wakes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.injected import Scene
from vmbackend.driver import MachineState
from vmbackend.errors import CapacityExceeded
from vmbackend.models import Host
from workspaces import last_used, power
from workspaces.errors import IdleNotSupported
from workspaces.guests import address_of
from workspaces.host.steps import sleep
from workspaces.host.sweep import due_workspaces, sweep_due
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import Mode
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
IDLE = 120


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A permanent workspace whose idle time is over."""
    return fault_cases.idle_machines(vmhost, api.account, IDLE)


def swept(host: FakeHost, row: Workspace) -> Workspace:
    sweep_due()
    host.settle()
    row.refresh_from_db()
    return row


def is_later(row: Workspace, seconds: float = IDLE) -> bool:
    """Whether it is looked at again after about that time."""
    assert row.idle_due_at is not None
    return abs((row.idle_due_at - timezone.now()).total_seconds() - seconds) < 10


def test_an_unused_workspace_falls_asleep(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = swept(vmhost, machine())
    assert (row.status, row.ready, row.idle_due_at) == ("sleeping", False, None)
    assert vmhost.driver.state(row.pk) is MachineState.ASLEEP
    entry = Activity.objects.get(workspace_id=row.pk, action="slept")
    assert entry.actor == "idle policy"
    assert fault_cases.inconsistencies(vmhost, row.pk) == []


def test_a_use_postpones_the_sleep(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    last_used.record_use(row.pk)
    row = swept(vmhost, row)
    assert row.status == "running"
    assert is_later(row)


def test_a_call_that_touches_the_guest_is_a_use(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    address_of(row)
    assert swept(vmhost, row).status == "running"


def test_a_use_long_ago_is_none(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine()
    now = time.time()
    monkeypatch.setattr(last_used.time, "time", lambda: now - IDLE - 5)
    last_used.record_use(row.pk)
    monkeypatch.undo()
    found = due_workspaces(timezone.now()).get()
    assert found.pk == row.pk


def test_a_workspace_in_use_stays_awake_and_sleeps_after_it(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine()
    with last_used.in_use(row.pk, 3600):
        row = swept(vmhost, row)
        assert row.status == "running"
        assert is_later(row, 3600 + IDLE)
    assert abs(time.time() - last_used.last_used(row.pk)) < 10  # the use is over, and its end counts


def test_a_process_that_died_in_a_use_stops_counting(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    last_used._write_use(row.pk, "a terminal of a process that died", time.time() - IDLE - 1)
    assert swept(vmhost, row).status == "sleeping"


def test_an_open_ssh_session_holds_it_awake(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine(ssh_enabled=True)
    monkeypatch.setattr(sleep, "ssh_is_open", lambda workspace: True)
    row = swept(vmhost, row)
    assert (row.status, row.ready, row.error_code) == ("running", True, "")
    assert is_later(row)
    monkeypatch.setattr(sleep, "ssh_is_open", lambda workspace: False)
    Workspace.objects.update(idle_due_at=timezone.now())
    assert swept(vmhost, row).status == "sleeping"


def test_without_redis_nothing_falls_asleep(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    vmhost.redis_away = True
    assert swept(vmhost, row).status == "running"
    vmhost.redis_away = False
    Workspace.objects.update(idle_due_at=timezone.now())
    assert swept(vmhost, row).status == "sleeping"


def test_redis_that_goes_away_between_the_sweep_and_the_last_look_holds_it_awake(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine()
    vmhost.hold_tasks()
    sweep_due()
    vmhost.redis_away = True
    vmhost.release_tasks()
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.ready) == ("running", True)
    assert is_later(row)


def test_a_use_in_the_last_moment_holds_it_awake(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    vmhost.hold_tasks()
    sweep_due()
    last_used.record_use(row.pk)
    vmhost.release_tasks()
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.ready) == ("running", True)
    assert not Activity.objects.filter(workspace_id=row.pk, action="sleep_failed").exists()


def test_a_use_after_the_memory_was_written_does_not_undo_it(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vmhost dies between the memory and the row, and the next attempt finds the workspace in use again."""
    row = machine()
    scene = Scene(vmhost, monkeypatch, "sleep", "complete", row.pk)

    def die() -> None:
        last_used.record_use(row.pk)
        raise vmhost.begin_death()

    scene.before(die)
    sweep_due()
    vmhost.settle_across_deaths()
    row.refresh_from_db()
    assert (row.status, fault_cases.inconsistencies(vmhost, row.pk)) == ("sleeping", [])


def test_a_policy_that_was_switched_off_clears_the_time(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = lifecycle.set_idle(workspace=machine(), actor="owner", suspend_after=0)
    assert (swept(vmhost, row).status, row.idle_due_at) == ("running", None)
    Workspace.objects.update(idle_due_at=timezone.now())
    assert (swept(vmhost, row).status, row.idle_due_at) == ("running", None)


@pytest.mark.parametrize("status", [Status.STOPPED, Status.PAUSED, Status.SLEEPING])
def test_a_policy_waits_for_the_workspace_to_run(
    vmhost: FakeHost, machine: Callable[..., Workspace], status: Status
) -> None:
    row = lifecycle.set_idle(workspace=machine(status), actor="owner", suspend_after=IDLE)
    Workspace.objects.update(idle_due_at=timezone.now())
    assert (swept(vmhost, row).status, row.idle_due_at) == (status, None)
    power.workspace_start(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert row.status == "running"
    assert is_later(row)


def test_a_sleep_that_fails_is_tried_after_another_idle_time(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine()
    vmhost.driver.fail_next("sleep", CapacityExceeded("The host has no room for the memory."))
    row = swept(vmhost, row)
    assert (row.status, row.ready, row.error_code) == ("running", True, "no_room")
    assert is_later(row)


def test_a_temporary_workspace_and_a_host_without_snapshots_have_no_idle_policy(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    with pytest.raises(IdleNotSupported):
        lifecycle.set_idle(workspace=machine(mode=Mode.TEMPORARY), actor="owner", suspend_after=IDLE)
    row = machine()
    Host.objects.update(snapshots=False)
    row.host.refresh_from_db()
    with pytest.raises(IdleNotSupported):
        lifecycle.set_idle(workspace=row, actor="owner", suspend_after=IDLE)
    assert lifecycle.set_idle(workspace=row, actor="owner", suspend_after=0).suspend_after == 0


def test_a_workspace_that_becomes_temporary_loses_its_idle_policy(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(stop_after=3600)
    lifecycle.make_temporary(workspace=row, actor="owner", ttl=3600, ttl_action="stop", remove_on_exit=False)
    assert (swept(vmhost, row).status, row.suspend_after, row.stop_after) == ("running", 0, 0)
