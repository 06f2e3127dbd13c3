"""The restart policy: each policy against each end of a machine, and how long and how often it is tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from vmbackend.errors import BackendUnavailable
from workspaces import power
from workspaces.host.restarts import FIRST_DELAY, HISTORY, LONGEST_DELAY, STABLE_SECONDS, restart_delay
from workspaces.host.sweep import sweep_due
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import RestartPolicy
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

NO, ALWAYS = RestartPolicy.NO, RestartPolicy.ALWAYS
ON_FAILURE, UNLESS_STOPPED = RestartPolicy.ON_FAILURE, RestartPolicy.UNLESS_STOPPED

ENDS: dict[str, tuple[Callable[[FakeHost, str], Any], str, int | None]] = {
    "exit 0": (lambda host, key: host.driver.exit(key, 0), "exited", 0),
    "exit 1": (lambda host, key: host.driver.exit(key, 1), "exited", 1),
    "kill": (lambda host, key: host.driver.kill(key), "crashed", None),
    "panic": (lambda host, key: host.driver.panic(key), "panicked", None),
    "lost": (lambda host, key: host.driver.lose_machine(key), "lost", None),
}
RESTARTS = {NO: set(), ALWAYS: set(ENDS), UNLESS_STOPPED: set(ENDS), ON_FAILURE: set(ENDS) - {"exit 0"}}


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A permanent workspace with a main process."""
    return fault_cases.permanent_machines(vmhost, api.account, cmd=["serve"])


def ended(host: FakeHost, row: Workspace) -> Workspace:
    """The row once its machine's end was reported."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        row.refresh_from_db()
        if row.status in (Status.STOPPED, Status.LOST):
            return row
        time.sleep(0.01)
    raise AssertionError(f"it is {row.status}")


def restarted(host: FakeHost, row: Workspace) -> Workspace:
    """The row after the sweep that its restart was due for."""
    Workspace.objects.filter(pk=row.pk, restart_due_at__isnull=False).update(restart_due_at=timezone.now())
    sweep_due()
    host.settle()
    row.refresh_from_db()
    return row


@pytest.mark.parametrize("policy", list(RestartPolicy))
@pytest.mark.parametrize("end", list(ENDS))
def test_each_policy_at_each_end(
    vmhost: FakeHost, machine: Callable[..., Workspace], policy: RestartPolicy, end: str
) -> None:
    happens, reason, code = ENDS[end]
    row = machine(restart_policy=policy)
    happens(vmhost, row.pk)
    row = ended(vmhost, row)
    wanted = end in RESTARTS[policy]
    assert (row.last_exit_reason, row.last_exit_code, row.user_requested_stop) == (reason, code, False)
    assert (row.restart_due_at is not None, row.restart_count) == (wanted, int(wanted))
    row = restarted(vmhost, row)
    assert (row.status == "running", row.last_restart_at is not None) == (wanted, wanted)
    assert fault_cases.inconsistencies(vmhost, row.pk) == []
    if wanted:
        assert row.restart_history[-1].items() >= {"exit_code": code, "reason": reason}.items()
        assert Activity.objects.filter(workspace_id=row.pk, action="started", actor="restart policy").exists()


@pytest.mark.parametrize("policy", list(RestartPolicy))
def test_what_its_owner_stopped_stays_so(
    vmhost: FakeHost, machine: Callable[..., Workspace], policy: RestartPolicy
) -> None:
    row = machine(restart_policy=policy)
    power.workspace_stop(workspace=row, actor="owner")
    vmhost.settle()
    assert (restarted(vmhost, row).status, row.user_requested_stop) == ("stopped", True)


@pytest.mark.parametrize(("end", "status"), [("kill", "stopped"), ("lose_machine", "lost")])
def test_a_stop_ends_a_restart_that_waits(
    vmhost: FakeHost, machine: Callable[..., Workspace], end: str, status: str
) -> None:
    row = machine(restart_policy=ALWAYS)
    getattr(vmhost.driver, end)(row.pk)
    row = ended(vmhost, row)
    assert row.status == status
    assert power.workspace_stop(workspace=row, actor="owner") is None
    assert (restarted(vmhost, row).status, row.user_requested_stop) == (status, True)


def test_remove_on_exit_beats_the_restart(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(restart_policy=ALWAYS, remove_on_exit=True)
    vmhost.driver.exit(row.pk, 0)
    until = time.monotonic() + 120
    while Workspace.objects.exists() and time.monotonic() < until:
        time.sleep(0.01)
    vmhost.settle()
    assert fault_cases.inconsistencies(vmhost, row.pk) == []
    assert not Workspace.objects.exists()


def test_the_delay_grows_to_its_limit() -> None:
    delays = [restart_delay(count) for count in range(20)]
    assert delays[:4] == [FIRST_DELAY, 2, 4, 8]
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_DELAY


def test_each_restart_in_a_row_waits_longer_and_is_in_the_history(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(restart_policy=ALWAYS)
    for count in range(3):
        vmhost.driver.exit(row.pk, count)
        row = ended(vmhost, row)
        assert row.restart_due_at is not None
        waits = (row.restart_due_at - timezone.now()).total_seconds()
        assert restart_delay(count) - 1 < waits <= restart_delay(count)
        row = restarted(vmhost, row)
    assert [entry["exit_code"] for entry in row.restart_history] == [0, 1, 2]
    assert row.restart_count == 3


def test_the_history_is_bounded(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(restart_policy=ALWAYS, restart_history=[{"at": "", "exit_code": n, "reason": ""} for n in range(20)])
    vmhost.driver.exit(row.pk, 20)
    history = ended(vmhost, row).restart_history
    assert [entry["exit_code"] for entry in history] == list(range(1, HISTORY + 1))


def test_a_long_run_resets_the_restart_count(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    long_ago = timezone.now() - timedelta(seconds=STABLE_SECONDS + 5)
    row = machine(restart_policy=ALWAYS, restart_count=7, started_at=long_ago)
    vmhost.driver.kill(row.pk)
    assert ended(vmhost, row).restart_count == 1


def test_no_more_restarts_than_max_restarts(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(restart_policy=ALWAYS, max_restarts=2)
    for _ in range(2):
        vmhost.driver.kill(row.pk)
        row = restarted(vmhost, ended(vmhost, row))
        assert row.status == "running"
    vmhost.driver.kill(row.pk)
    row = ended(vmhost, row)
    assert (row.restart_due_at, row.restart_count) == (None, 2)
    assert "not started again" in Activity.objects.get(workspace_id=row.pk, action="restart_given_up").detail
    power.workspace_start(workspace=row, actor="owner")  # its owner begins a new count
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.restart_count) == ("running", 0)


def test_a_restart_that_fails_is_tried_again_and_counted(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(restart_policy=ON_FAILURE, max_restarts=2)
    vmhost.driver.kill(row.pk)
    row = ended(vmhost, row)
    vmhost.driver.fail_next("start", BackendUnavailable("Away."), times=3)
    row = restarted(vmhost, row)
    assert (row.status, row.restart_count, row.restart_due_at is not None) == ("stopped", 2, True)
    row = restarted(vmhost, row)
    assert (row.status, row.restart_count, row.error_code) == ("running", 2, "")


def test_the_last_failed_restart_is_reported(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(restart_policy=ALWAYS, max_restarts=1)
    vmhost.driver.kill(row.pk)
    ended(vmhost, row)
    vmhost.driver.fail_next("start", BackendUnavailable("Away."), times=3)
    row = restarted(vmhost, row)
    assert (row.status, row.restart_due_at) == ("stopped", None)
    reported = Activity.objects.filter(workspace_id=row.pk, action__startswith="restart_").order_by("pk")
    assert list(reported.values_list("action", flat=True)) == ["restart_planned", "restart_given_up"]


def test_a_start_that_its_owner_asked_for_and_that_fails_is_not_repeated(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(Status.STOPPED, restart_policy=ALWAYS)
    vmhost.driver.fail_next("start", BackendUnavailable("Away."), times=3)
    power.workspace_start(workspace=row, actor="owner")
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.restart_due_at, row.error_code) == ("stopped", None, "backend_unavailable")


def test_a_restart_without_capacity_waits_and_is_reported_once(
    api: Caller, vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(restart_policy=ALWAYS)
    vmhost.driver.kill(row.pk)
    row = ended(vmhost, row)
    namespace = row.namespace
    type(namespace).objects.filter(pk=namespace.pk).update(status="suspended", suspended_by_quota=True)
    for _ in range(2):
        row = restarted(vmhost, Workspace.objects.get())
        assert (row.status, row.error_code, row.restart_due_at is not None) == ("stopped", "quota_exceeded", True)
    assert Activity.objects.filter(action="restart_postponed").count() == 1
    type(namespace).objects.filter(pk=namespace.pk).update(status="active", suspended_by_quota=False)
    row = restarted(vmhost, Workspace.objects.get())
    assert (row.status, row.error_code) == ("running", "")
