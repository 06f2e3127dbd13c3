"""Who holds an operation: one process at a time, to its deadline at the latest, and never past a delete."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from common.capacity import AccountCapacity
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES, Case
from tests.workspaces.faults.injected import Scene, raiser
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.errors import BackendUnavailable
from workspaces.crud.services import workspace_delete
from workspaces.host import engine, faults
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host.reconcile.operations import expire_operations
from workspaces.models import Activity, Operation, Snapshot, Workspace
from workspaces.models.operation import KEEPS_STATUS, OperationKind, OperationState
from workspaces.operations import queue, waiting
from workspaces.states import TRANSITIONAL, Status

pytestmark = pytest.mark.django_db(transaction=True)
CASE = {case.name: case for case in CASES}


@pytest.fixture
def begin(api: Caller, vmhost: FakeHost) -> Callable[[str], str]:
    """A workspace with an operation queued and its task held."""
    return lambda name: fault_cases.begin(vmhost, api.account, CASE[name])


def status_of(made: str) -> str | None:
    return Workspace.objects.filter(pk=made).values_list("status", flat=True).first()


def test_a_death_in_a_cancelled_creation_is_followed_by_the_delete(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begin("create")
    scene = Scene(vmhost, monkeypatch, "create", "start_machine", made)

    def die() -> None:
        workspace_delete(workspace=Workspace.objects.get(pk=made), actor="test")
        raise vmhost.begin_death()

    scene.before(die)
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    assert (scene.happened, status_of(made), fault_cases.inconsistencies(vmhost, made)) == (1, None, [])


@pytest.mark.parametrize("error", [BackendUnavailable("Away."), ValueError("a mistake of ours")])
def test_a_delete_that_comes_as_an_operation_fails_need_not_wait_for_reconcile(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made = begin("create")
    scene = Scene(vmhost, monkeypatch, "create", "wait_ready", made)

    def delete_and_fail() -> None:
        if scene.happened == engine.MAX_ATTEMPTS or isinstance(error, ValueError):
            workspace_delete(workspace=Workspace.objects.get(pk=made), actor="test")
        raise error

    scene.before(delete_and_fail, times=engine.MAX_ATTEMPTS)
    vmhost.release_tasks()
    vmhost.settle()
    assert (status_of(made), fault_cases.inconsistencies(vmhost, made)) == (None, [])


def test_operations_that_a_living_process_holds_are_not_taken_from_it(
    vmhost: FakeHost, begin: Callable[[str], str]
) -> None:
    made = begin("start")
    vmhost.driver.delays = {"start": 0.4}
    vmhost.release_tasks()
    time.sleep(0.15)
    for _ in range(3):
        reconcile_rows_and_machines(vmhost.runtime)
    vmhost.settle()
    assert Operation.objects.get(kind="start").attempt == 1
    assert (status_of(made), fault_cases.inconsistencies(vmhost, made)) == ("running", [])


def test_two_engines_run_one_operation_once(vmhost: FakeHost, begin: Callable[[str], str]) -> None:
    begin("create")
    operation = Operation.objects.get()
    vmhost.driver.delays = {"prepare": 0.05}
    prepared: list[str] = []
    vmhost.driver.crash_hook = prepared.append

    def run(_: int) -> None:
        try:
            engine.run_operation(operation.pk, vmhost.runtime)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(12)))
    operation.refresh_from_db()
    assert (operation.state, operation.attempt) == (OperationState.SUCCEEDED, 1)
    assert prepared.count("prepare:disk") == 1
    assert Activity.objects.filter(action="started").count() == 1


def test_a_lost_notification_is_sent_again(vmhost: FakeHost, begin: Callable[[str], str]) -> None:
    made = begin("create")
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()  # lost
    vmhost.release_tasks()
    vmhost.runtime.send_heartbeat()
    assert status_of(made) == "queued"  # not yet: it may be on its way
    Operation.objects.update(notified_at=timezone.now() - timedelta(seconds=6))
    vmhost.runtime.send_heartbeat()
    vmhost.settle()
    assert (status_of(made), fault_cases.inconsistencies(vmhost, made)) == ("running", [])


def test_a_lost_notification_is_sent_again_where_the_clock_was_set_back(
    vmhost: FakeHost, begin: Callable[[str], str]
) -> None:
    made = begin("create")
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()  # lost
    vmhost.release_tasks()
    Operation.objects.update(notified_at=timezone.now() + timedelta(hours=1))
    vmhost.runtime.send_heartbeat()
    vmhost.settle()
    assert (status_of(made), fault_cases.inconsistencies(vmhost, made)) == ("running", [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("claimed", [False, True])
def test_an_operation_past_its_deadline_ends_in_a_state_to_act_on(
    vmhost: FakeHost, api: Caller, case: Case, claimed: bool
) -> None:
    made = fault_cases.begin(vmhost, api.account, case)
    operation = Operation.objects.get(kind=case.kind)
    if claimed:
        assert queue.claim_operation(operation.pk, "a-token")
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now() - timedelta(seconds=1))
    assert (expire_operations(), expire_operations()) == (1, 0)
    row = Workspace.objects.get(pk=made)
    if case.kind in KEEPS_STATUS and row.status not in TRANSITIONAL:
        assert Snapshot.objects.get(operation_id=operation.pk).error_code == "deadline_exceeded"
    elif case.kind != OperationKind.DELETE:
        assert row.error_code == "deadline_exceeded"
        assert Status(row.status) in fault_cases.MACHINE_OF  # before the host was heard
    operation.refresh_from_db()
    assert (operation.state, operation.error_code) == (OperationState.FAILED, "deadline_exceeded")
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    assert fault_cases.inconsistencies(vmhost, made) == []
    assert fault_cases.act(vmhost, made) == []


def test_a_claim_owner_that_comes_too_late_changes_nothing(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begin("start")

    def overtake(kind: str, name: str) -> None:
        if (kind, name) == ("start", "complete"):
            Operation.objects.filter(kind="start").update(deadline_at=timezone.now() - timedelta(seconds=1))
            expire_operations()

    monkeypatch.setattr(faults, "fault_point", overtake)
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    assert (status_of(made), fault_cases.inconsistencies(vmhost, made)) == ("stopped", [])
    assert Workspace.objects.get().error_code == "deadline_exceeded"


def test_what_an_attempt_did_is_known_to_the_next(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was erased by an attempt that died is never said to be untouched."""
    made = begin("reinstall")
    scene = Scene(vmhost, monkeypatch, "reinstall", "start_machine", made)

    def die() -> None:
        vmhost.driver.fail_next("shutdown", BackendUnavailable("The hypervisor is away."), times=3)
        raise vmhost.begin_death()

    scene.before(die)
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.error_code) == ("stopped", "relaunch_failed")
    assert fault_cases.inconsistencies(vmhost, made) == []


def test_sizes_that_an_attempt_applied_stay(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begin("resize running")
    before = Operation.objects.get().params["before"]["disk_size_mb"]
    scene = Scene(vmhost, monkeypatch, "resize", "wait_ready", made)
    scene.before(raiser(vmhost.begin_death()), times=engine.MAX_ATTEMPTS)
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    row = Workspace.objects.get(pk=made)
    assert vmhost.driver.definition(made)["disk_mb"] == row.disk_size_mb == row.applied_disk_size_mb == before * 2


# Waiting


def test_a_notification_that_cannot_be_sent_raises_nothing(api: Caller, vmhost: FakeHost) -> None:
    vmhost.redis_away = True
    row = make_workspace(api.account, host=make_host(), status=Status.STOPPED)
    operation = queue.enqueue_operation(row, OperationKind.START, actor="test")
    assert Operation.objects.get(pk=operation.pk).state == OperationState.QUEUED
    waiting.announce_outcome(operation.pk)
    assert waiting.wait_for_outcome(operation, 0.2) is None


def test_too_many_waiters_are_answered_at_once(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    capacity = AccountCapacity(total=4, per_account=3)
    monkeypatch.setattr(waiting, "waiting_capacity", lambda: capacity)
    row = make_workspace(api.account, host=make_host(), status=Status.STOPPED)
    operation = queue.enqueue_operation(row, OperationKind.START, actor="test")
    began = time.monotonic()
    with capacity.reserve(api.account.pk), capacity.reserve(api.account.pk), capacity.reserve(api.account.pk):
        assert waiting.wait_for_outcome(operation, 30) is None
        with capacity.reserve("another"):
            pass
    assert time.monotonic() - began < 1
