"""The clock of the host is set back by an hour: what was due is due after its own length, not an hour later."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.fakehost import FakeHost
from tests.workspaces.sweep.sweeping import HOUR, status_of, sweep_and_settle
from workspaces import last_used
from workspaces.host import due_times
from workspaces.host.due_times import due_times_correct
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Workspace
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
IDLE = 120


@pytest.fixture(autouse=True)
def settled_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of the tests may have been up for less."""
    monkeypatch.setattr(due_times.time, "clock_gettime", lambda clock: due_times.SETTLED_SECONDS + 1)


def write_clock(monkeypatch: pytest.MonkeyPatch, ahead: timedelta) -> None:
    now = time.time() + ahead.total_seconds()
    monkeypatch.setattr(last_used.time, "time", lambda: now)


def after(row: Workspace, column: str) -> float:
    """Seconds until a due time."""
    row.refresh_from_db()
    at = getattr(row, column)
    assert at is not None
    return float((at - timezone.now()).total_seconds())


def test_an_unused_workspace_falls_asleep_in_the_next_sweep(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine(mode=Mode.PERMANENT, ttl_seconds=None, suspend_after=IDLE, idle_due_at=timezone.now() + HOUR)
    assert due_times_correct() == 1
    sweep_and_settle(vmhost)
    assert status_of(row) == "sleeping"


def test_a_use_of_before_counts_as_one_of_now_and_not_at_every_look(
    machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine(mode=Mode.PERMANENT, ttl_seconds=None, suspend_after=IDLE)
    write_clock(monkeypatch, HOUR)
    last_used.record_use(row.pk)
    write_clock(monkeypatch, timedelta())
    assert last_used.last_used(row.pk) <= time.time() + 1
    write_clock(monkeypatch, timedelta(seconds=IDLE + 1))
    assert not last_used.is_in_use(row.pk, IDLE)


def test_a_command_that_runs_keeps_its_own_length(
    machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine(mode=Mode.PERMANENT, ttl_seconds=None, suspend_after=IDLE)
    write_clock(monkeypatch, HOUR)
    with last_used.in_use(row.pk, 600):
        write_clock(monkeypatch, timedelta())
        assert 595 < last_used.last_used(row.pk) - last_used.time.time() <= 600
    assert last_used.last_used(row.pk) <= last_used.time.time()


@pytest.mark.parametrize("renewed", [None, 7200], ids=["its own length", "a ping's"])
def test_a_ttl_is_over_after_its_length(
    vmhost: FakeHost, machine: Callable[..., Workspace], renewed: int | None
) -> None:
    row = machine(ttl_action=TtlAction.STOP)
    lifecycle.workspace_ping(workspace=row, actor="owner", ttl=renewed)
    assert due_times_correct() == 0, "a length that a ping gave is right"
    Workspace.objects.update(ttl_expires_at=timezone.now() + timedelta(seconds=renewed or 3600) + HOUR)
    assert due_times_correct() == 1
    assert abs(after(row, "ttl_expires_at") - (renewed or 3600)) < 60


def test_kept_memory_and_planned_restarts_too(machine: Callable[..., Workspace]) -> None:
    asleep = machine(Status.SLEEPING, stop_after=600, memory_expires_at=timezone.now() + HOUR)
    stopped = machine(
        Status.STOPPED, restart_policy=RestartPolicy.ALWAYS, restart_due_at=timezone.now() + HOUR, mode=Mode.PERMANENT
    )
    assert due_times_correct() == 2
    assert abs(after(asleep, "memory_expires_at") - 600) < 60
    assert after(stopped, "restart_due_at") <= due_times.LONGEST_DELAY


def test_times_that_are_right_stay(machine: Callable[..., Workspace]) -> None:
    now = timezone.now()
    row = machine(Status.SLEEPING, stop_after=600, memory_expires_at=now + timedelta(seconds=600))
    other = machine(suspend_after=IDLE, idle_due_at=now + timedelta(seconds=IDLE))
    before = [Workspace.objects.values("memory_expires_at", "idle_due_at").get(pk=each.pk) for each in (row, other)]
    assert due_times_correct() == 0
    assert before == [
        Workspace.objects.values("memory_expires_at", "idle_due_at").get(pk=each.pk) for each in (row, other)
    ]


def test_nothing_is_corrected_soon_after_a_boot(
    machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is behind is set then, and a TTL that ended early would remove a disk."""
    machine(ttl_length=3600, ttl_expires_at=timezone.now() + timedelta(hours=2))
    monkeypatch.setattr(due_times.time, "clock_gettime", lambda clock: due_times.SETTLED_SECONDS - 1)
    assert due_times_correct() == 0
