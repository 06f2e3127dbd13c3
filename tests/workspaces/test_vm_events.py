"""The events of machines that stopped, ended or vanished: each fact once, in the transaction of the row."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from namespaces.models import Namespace
from namespaces.services import namespace_delete
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.webhooks.outbox import published, subscribe
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES
from tests.workspaces.rows import make_workspace
from vmbackend.errors import InvalidMachineState
from webhooks.models import Event
from workspaces.crud.services import workspace_delete
from workspaces.host import process
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Workspace
from workspaces.models.workspace import RestartPolicy
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition

pytestmark = pytest.mark.django_db(transaction=True)
CASE = {case.name: case for case in CASES}
NO = InvalidMachineState("The backend says no.")


@pytest.fixture(autouse=True)
def webhook(api: Caller) -> None:
    subscribe(api.account)


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A workspace with a machine, in any state at rest."""
    return lambda status=Status.RUNNING, **fields: fault_cases.machine(vmhost, api.account, status, **fields)


def eventually(row: Workspace, status: str) -> None:
    """Wait until the end of a machine is settled."""
    until = time.monotonic() + 120
    while (found := Workspace.objects.filter(pk=row.pk).first()) and found.status != status:
        assert time.monotonic() < until, found.status
        time.sleep(0.01)


def published_of(row: Workspace) -> list[tuple[str, Any]]:
    """Type of each event of its machine, and what its data has beside the workspace."""
    found = [(name, data) for name, data in published(row.account) if name.startswith("vm.")]
    shown = {"namespace": "default", "workspace_id": row.pk, "workspace_name": row.name, "kind": "workspace"}
    for _, data in found:
        for name, value in shown.items():
            assert data.pop(name) == value
    return found


@pytest.mark.parametrize("name", CASE)
def test_of_all_operations_only_a_stop_is_published(vmhost: FakeHost, api: Caller, name: str) -> None:
    case = CASE[name]
    key = fault_cases.begin(vmhost, api.account, case)
    row = Workspace.objects.get(pk=key)
    vmhost.release_tasks()
    vmhost.settle()
    assert fault_cases.inconsistencies(vmhost, key) == []
    stops = case.kind == "stop" or case.name == "snapshot and stop"
    expected = [("vm.stopped", {"reason": "requested"})] if stops else []
    assert published_of(row) == expected


@pytest.mark.parametrize("before", [Status.RUNNING, Status.PAUSED])
@pytest.mark.parametrize(("happens", "reason"), [("kill", "crashed"), ("panic", "panicked")])
def test_a_machine_that_ends_by_itself_has_exited(
    vmhost: FakeHost, machine: Callable[..., Workspace], before: Status, happens: str, reason: str
) -> None:
    row = machine(before)
    getattr(vmhost.driver, happens)(row.pk)
    eventually(row, "stopped")
    reconcile_rows_and_machines(vmhost.runtime)
    assert published_of(row) == [("vm.exited", {"reason": reason, "exit_code": None, "restart_at": None})]


def test_the_end_of_a_main_process_has_its_code_and_the_restart(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(cmd=["serve"], restart_policy=RestartPolicy.ON_FAILURE, mode="permanent")
    vmhost.driver.exit(row.pk, 3)
    eventually(row, "stopped")
    [(name, data)] = published_of(row)
    assert (name, data["reason"], data["exit_code"]) == ("vm.exited", "exited", 3)
    assert data["restart_at"].endswith("Z")


def test_a_machine_that_vanished_is_lost(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    vmhost.driver.lose_machine(row.pk)
    eventually(row, "lost")
    assert published_of(row) == [("vm.lost", {"restart_at": None})]


def test_a_start_that_fails_is_no_stop(vmhost: FakeHost, machine: Callable[..., Workspace], api: Caller) -> None:
    row = machine(Status.STOPPED)
    vmhost.driver.fail_next("start", NO, times=3)
    assert api.post(f"/workspace/{row.pk}/start").status_code >= 400
    assert published_of(row) == []


def test_a_restart_that_fails_is_a_stop(vmhost: FakeHost, machine: Callable[..., Workspace], api: Caller) -> None:
    row = machine()
    vmhost.driver.fail_next("start", NO, times=3)
    assert api.post(f"/workspace/{row.pk}/restart").status_code >= 400
    assert published_of(row) == [("vm.stopped", {"reason": "failed"})]


def test_machines_that_go_down_with_their_host_are_stopped(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine()
    monkeypatch.setattr(settings.ENV, "stop_vms_on_down", True)
    process.close_host()
    assert published_of(row) == [("vm.stopped", {"reason": "host_down"})]


def test_saved_memory_that_is_gone_is_a_stop(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.SLEEPING)
    vmhost.driver.delete(row.pk)
    reconcile_rows_and_machines(vmhost.runtime)
    assert published_of(row) == [("vm.stopped", {"reason": "memory_lost"})]


def test_a_deletion_is_no_stop(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine()
    workspace_delete(workspace=row, actor="owner")
    vmhost.settle()
    assert not Workspace.objects.filter(pk=row.pk).exists()
    assert published_of(row) == []


def test_an_event_outlives_its_workspace(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(remove_on_exit=True)
    vmhost.driver.kill(row.pk)
    eventually(row, "gone")
    assert [name for name, _ in published_of(row)] == ["vm.exited"]


def test_a_transition_that_is_lost_or_rolled_back_publishes_nothing(api: Caller) -> None:
    row = make_workspace(api.account)
    Workspace.objects.filter(pk=row.pk).update(status=Status.DELETING)
    with pytest.raises(TransitionLost), transaction.atomic():
        transition(row, Status.STOPPED)
    Workspace.objects.filter(pk=row.pk).update(status=Status.RUNNING)
    with pytest.raises(ZeroDivisionError):
        stop_and_fail(row)
    assert not Event.objects.exists()
    row.refresh_from_db()
    assert row.status == Status.RUNNING


@transaction.atomic
def stop_and_fail(row: Workspace) -> None:
    transition(row, Status.STOPPED)
    raise ZeroDivisionError


def test_the_slug_of_a_deleted_namespace_is_not_shown(api: Caller) -> None:
    """It is free for another namespace, whose machine a receiver would take it for."""
    namespace = Namespace.objects.create(account=api.account, name="Old", slug="team")
    row = make_workspace(api.account, namespace=namespace, status=Status.RUNNING)
    namespace_delete(namespace=namespace, delete_workspaces=True, actor="owner")
    Namespace.objects.create(account=api.account, name="New", slug="team")
    transition(row, Status.STOPPED)
    [(_, data)] = published(api.account, "vm.exited", "vm.stopped")
    assert (data["namespace"], data["workspace_id"]) == ("", row.pk)
