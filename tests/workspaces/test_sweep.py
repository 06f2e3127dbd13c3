"""What becomes due: the TTL and the expiry of saved memory, from every state, and the cost of finding it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from config.celery_settings import beat_schedule
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.errors import BackendUnavailable
from vmbackend.models import Host
from workspaces.host.sweep import BATCH, due_workspaces, expire_ttl, sweep_due
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import DUE_COLUMNS, Mode, TtlAction
from workspaces.power import services as power
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

RESTING = [Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.STOPPED]
WITHOUT_MACHINE = [Status.LOST, Status.FAILED, Status.DESTROYED]
AFTER_TTL: dict[TtlAction, dict[Status, Status | None]] = {
    TtlAction.STOP: {Status.RUNNING: Status.STOPPED, Status.PAUSED: Status.STOPPED, Status.SLEEPING: Status.STOPPED},
    TtlAction.PAUSE: {Status.RUNNING: Status.PAUSED},
    TtlAction.REMOVE: dict.fromkeys(RESTING + WITHOUT_MACHINE),
}
HOUR = timedelta(hours=1)


def ago(length: timedelta = timedelta(seconds=1)) -> Any:
    return timezone.now() - length


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A temporary workspace at rest with its machine."""

    def make(status: Status = Status.RUNNING, **fields: Any) -> Workspace:
        fields = {"mode": Mode.TEMPORARY, "ttl_seconds": 3600, **fields}
        return fault_cases.machine(vmhost, api.account, status, **fields)

    return make


def swept(host: FakeHost) -> int:
    done = sweep_due()
    host.settle()
    return done


def status_of(row: Workspace) -> str | None:
    return Workspace.objects.filter(pk=row.pk).values_list("status", flat=True).first()


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
    swept(vmhost)
    ends = AFTER_TTL[action].get(status, status)
    assert (status_of(row), fault_cases.inconsistencies(vmhost, row.pk)) == (ends, [])
    assert not due_workspaces(timezone.now()).exists()
    if ends is None or ends is not status:
        assert Activity.objects.filter(workspace_id=row.pk, actor="ttl", detail__startswith="The time to live").exists()
    if ends is not None:
        row.refresh_from_db()
        assert (row.user_requested_stop, row.ttl_expires_at) == (False, None)
    assert swept(vmhost) == 0


def test_what_expired_while_the_control_plane_was_down_is_done_at_the_first_sweep(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    rows = [machine(ttl_action=action, ttl_expires_at=ago(HOUR)) for action in TtlAction]
    vmhost.restart()
    assert swept(vmhost) == 3
    assert [status_of(row) for row in rows] == ["stopped", "paused", None]


def test_the_sweep_runs_every_second() -> None:
    """So a TTL fires within two seconds of its time."""
    assert beat_schedule["sweep-due"]["schedule"] == 1


def test_nothing_happens_before_its_time(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(ttl_expires_at=timezone.now() + timedelta(seconds=60))
    assert swept(vmhost) == 0
    assert status_of(row) == "running"


def test_a_renewal_between_the_query_and_the_action_wins(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(ttl_action=TtlAction.REMOVE, ttl_expires_at=ago())
    found = due_workspaces(timezone.now()).get()
    lifecycle.ping(workspace=row, actor="owner")
    assert expire_ttl(found) is False
    vmhost.settle()
    assert status_of(row) == "running"
    assert swept(vmhost) == 0


def test_a_ttl_that_is_over_while_an_operation_goes_on_is_done_after_it(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(ttl_expires_at=ago())
    vmhost.hold_tasks()
    power.workspace_pause(workspace=row, actor="owner")
    assert swept_held() == 0
    vmhost.release_tasks()
    vmhost.settle()
    assert status_of(row) == "paused"
    swept(vmhost)
    assert status_of(row) == "stopped"


def swept_held() -> int:
    return sweep_due()


@pytest.mark.parametrize(("action", "method"), [(TtlAction.STOP, "shutdown"), (TtlAction.PAUSE, "pause")])
def test_an_action_that_fails_is_done_later(
    vmhost: FakeHost, machine: Callable[..., Workspace], action: TtlAction, method: str
) -> None:
    row = machine(ttl_action=action, ttl_expires_at=ago())
    vmhost.driver.fail_next(method, BackendUnavailable("Away."), times=3)
    swept(vmhost)
    assert status_of(row) == "running"
    row.refresh_from_db()
    assert row.ttl_expires_at is not None
    assert row.ttl_expires_at > timezone.now() + timedelta(seconds=30), "not at every sweep"
    Workspace.objects.filter(ttl_expires_at__isnull=False).update(ttl_expires_at=ago())
    swept(vmhost)
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
    assert swept(vmhost) == 0


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


# Many rows


def stuck(api: Caller, count: int, **fields: Any) -> None:
    host = make_host("silent", seen=ago(HOUR))
    template = make_workspace(api.account, host=host, **fields)
    rows = []
    for number in range(1, count):
        row = Workspace.objects.get(pk=template.pk)
        row.pk, row.slug = f"ws_stuck{number:08d}", f"stuck-{number}"
        rows.append(row)
    Workspace.objects.bulk_create(rows)


def test_rows_of_a_silent_host_stay_due_and_delay_no_other_row(
    api: Caller, vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    stuck(api, 2 * BATCH, ttl_action=TtlAction.STOP, ttl_expires_at=ago(HOUR), ttl_seconds=60)
    row = machine(ttl_expires_at=ago())
    assert swept(vmhost) == 1
    assert status_of(row) == "stopped"
    waiting = Workspace.objects.filter(host_id="silent", status=Status.RUNNING, ttl_expires_at__lt=timezone.now())
    assert waiting.count() == 2 * BATCH
    Host.objects.filter(name="silent").update(last_seen_at=timezone.now())
    vmhost.hold_tasks()
    assert sweep_due() == BATCH
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()


def test_rows_that_cannot_be_handled_delay_no_other_row(
    api: Caller, vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    """Restarts that the namespace refuses, more of them than a sweep takes at once."""
    stuck(api, BATCH + 50, status=Status.STOPPED, restart_policy="always", restart_due_at=ago(HOUR))
    Host.objects.update(last_seen_at=timezone.now())
    closed = api.account.namespaces.create(slug="closed", status="suspended", suspended_by_hand=True)
    Workspace.objects.update(namespace=closed)
    row = machine(ttl_expires_at=ago())
    sweep_due()
    sweep_due()
    vmhost.settle()
    assert status_of(row) == "stopped"
    assert Workspace.objects.filter(restart_due_at__gt=timezone.now()).count() == BATCH + 50
    assert Activity.objects.filter(event="restart_postponed").count() == BATCH + 50
    Workspace.objects.filter(restart_due_at__isnull=False).update(restart_due_at=ago())
    sweep_due()
    assert Activity.objects.filter(event="restart_postponed").count() == BATCH + 50  # reported once


def test_a_sweep_with_nothing_due_is_one_query_over_the_indexes(
    api: Caller, vmhost: FakeHost, django_assert_num_queries: Any
) -> None:
    later = timezone.now() + HOUR
    stuck(api, 2000, ttl_expires_at=later, idle_due_at=later, memory_expires_at=later, restart_due_at=later)
    # SQLite never looks how the rows are distributed unless asked to; PostgreSQL does it by itself.
    for knows in (True,) if connection.vendor == "postgresql" else (False, True):
        if knows:
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")
        with django_assert_num_queries(1) as asked:
            assert sweep_due() == 0
        plan = explained(asked.captured_queries[0]["sql"])
        assert [column for column in DUE_COLUMNS if f"workspace_{column}" not in plan] == []
        assert "SCAN workspaces_workspace" not in plan
        assert "Seq Scan on workspaces_workspace" not in plan


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"{'EXPLAIN QUERY PLAN' if connection.vendor == 'sqlite' else 'EXPLAIN'} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


# The memory of sleeping workspaces


def test_memory_is_kept_as_long_as_the_policy_says(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(mode=Mode.PERMANENT, ttl_seconds=None, suspend_after=120, stop_after=3600)
    power.workspace_sleep(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert row.memory_expires_at is not None
    assert abs(row.memory_expires_at - timezone.now() - HOUR) < timedelta(seconds=10)
    assert swept(vmhost) == 0
    Workspace.objects.update(memory_expires_at=ago())
    assert swept(vmhost) == 1
    row.refresh_from_db()
    assert (row.status, row.user_requested_stop, row.memory_expires_at) == ("stopped", False, None)
    assert "slept longer" in Activity.objects.filter(workspace_id=row.pk, event="stopped").get().detail
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
    swept(vmhost)
    assert status_of(row) == "sleeping"
    swept(vmhost)
    assert status_of(row) == "stopped"


def test_memory_that_a_wake_used_is_not_waited_for(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.SLEEPING, stop_after=3600, memory_expires_at=timezone.now() + HOUR)
    power.workspace_wake(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.memory_expires_at) == ("running", None)
