"""`DELETE /workspace/:id`: accepted from every state, and afterwards nothing is left (wire contract, section 3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from accounts.models import Account
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import end_leases, live_operations, make_host
from vmbackend.errors import BackendUnavailable
from workspaces.host import faults
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Activity, Operation, Workspace
from workspaces.power import workspace_start, workspace_stop
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def assert_gone(api: Caller, vmhost: FakeHost, identifier: str) -> None:
    vmhost.settle()
    assert api.get(f"/workspace/{identifier}").status_code == 404
    assert api.get("/workspace").json()["total"] == 0
    assert vmhost.driver.inventory().ids() == frozenset()
    assert not Operation.objects.exists()
    assert Account.objects.get(pk=api.account.pk).workspace_count == 0


def test_a_deleted_workspace_is_gone_with_its_machine(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {"slug": "short-lived"}).json()["workspace"]["id"]
    answer = api.delete("/workspace/short-lived", {"why": "a DELETE may carry a body"})
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    assert answer.json()["message"]
    assert_gone(api, vmhost, made)
    assert api.delete(f"/workspace/{made}").status_code == 404
    assert list(Activity.objects.filter(workspace_id=made).values_list("action", flat=True)[:2]) == [
        "deleted",
        "delete_requested",
    ]
    assert api.post("/workspace", {"slug": "short-lived"}).status_code == 201  # the slug is free again


@pytest.mark.parametrize("status", [status for status in Status if status != Status.DELETING])
def test_every_state_can_be_deleted(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    Workspace.objects.update(status=status, ready=False)
    answer = api.delete(f"/workspace/{made}")
    assert answer.status_code == (202 if status in (Status.QUEUED, Status.CREATING) else 200)
    assert_gone(api, vmhost, made)


def test_deleting_a_creation_that_is_queued_is_202_and_then_404(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    made = api.post("/workspace", {"wait_ready": False}).json()["id"]
    answer = api.delete(f"/workspace/{made}")
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert api.get(f"/workspace/{made}").json()["workspace"]["info"]["status"] == "deleting"
    assert api.delete(f"/workspace/{made}").status_code == 202
    assert live_operations() == 1
    vmhost.release_tasks()
    assert_gone(api, vmhost, made)


@pytest.mark.parametrize("step", ["pull_image", "prepare_machine", "start_machine", "wait_ready", "complete"])
def test_deleting_a_creation_in_each_of_its_steps(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    answers: list[Any] = []

    def delete_now(kind: str, name: str) -> None:
        if (kind, name) == ("create", step):
            answers.append(api.delete(f"/workspace/{Workspace.objects.get().pk}"))

    monkeypatch.setattr(faults, "fault_point", delete_now)
    made = api.post("/workspace", {"wait_ready": False}).json()["id"]
    vmhost.settle()
    assert [answer.status_code for answer in answers] == [202]
    assert_gone(api, vmhost, made)


@pytest.mark.parametrize("step", ["find_image", "prepare_machine", "start_machine", "wait_ready", "complete"])
def test_deleting_while_a_start_is_in_flight(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    api.post(f"/workspace/{made}/stop")
    asked: list[Any] = []

    def delete_now(kind: str, name: str) -> None:
        if (kind, name) == ("start", step):
            from workspaces.crud.services import workspace_delete

            asked.append(workspace_delete(workspace=Workspace.objects.get(), actor="test"))

    monkeypatch.setattr(faults, "fault_point", delete_now)
    answer = api.post(f"/workspace/{made}/start")
    assert answer.status_code in (404, 409)
    assert len(asked) == 1
    assert_gone(api, vmhost, made)


def test_deleting_while_a_stop_is_in_flight_follows_it(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    vmhost.driver.delays = {"shutdown": 0.3}
    workspace_stop(workspace=Workspace.objects.get(), actor="test")
    assert api.delete(f"/workspace/{made}").status_code == 200
    assert_gone(api, vmhost, made)


def test_two_deletes_at_once_are_one(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    vmhost.driver.delays = {"delete": 0.05}

    def one(_: int) -> int:
        try:
            return api.delete(f"/workspace/{made}").status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(one, range(8)))
    assert set(codes) <= {200, 404}
    assert 200 in codes
    assert_gone(api, vmhost, made)
    assert Activity.objects.filter(workspace_id=made, action="deleted").count() == 1


def test_a_silent_host_removes_the_workspace_when_it_is_back(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    vmhost.hold_tasks()
    end_leases()
    began = timezone.now()
    answer = api.delete(f"/workspace/{made}")
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert timezone.now() - began < timedelta(seconds=5)
    assert api.get(f"/workspace/{made}").json()["workspace"]["info"]["status"] == "deleting"
    vmhost.release_tasks()
    assert_gone(api, vmhost, made)


def test_a_workspace_that_was_never_placed_goes_at_once(api: Caller) -> None:
    from tests.workspaces.rows import make_workspace

    make_host(seen=timezone.now() - timedelta(hours=1))
    row = make_workspace(api.account, status=Status.FAILED)
    assert api.delete(f"/workspace/{row.pk}").status_code == 200
    assert api.get(f"/workspace/{row.pk}").status_code == 404
    assert api.get("/workspace").json()["total"] == 0


def test_a_removal_that_fails_is_not_reported_as_done_and_is_tried_again(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    vmhost.driver.fail_next("delete", BackendUnavailable("The hypervisor is away."), times=3)
    answer = api.delete(f"/workspace/{made}")
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert api.get(f"/workspace/{made}").json()["workspace"]["info"]["status"] == "deleting"
    reconcile_rows_and_machines(vmhost.runtime)
    assert_gone(api, vmhost, made)


def test_nothing_starts_what_is_being_deleted(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    vmhost.hold_tasks()
    from workspaces.crud.services import workspace_delete

    workspace_delete(workspace=Workspace.objects.get(), actor="test")
    for action in ("start", "stop"):
        answer = api.post(f"/workspace/{made}/{action}")
        assert (answer.status_code, answer.json()["code"]) == (409, "operation_in_progress")
    vmhost.release_tasks()
    assert_gone(api, vmhost, made)


def test_what_a_start_left_behind_a_delete_is_gone_too(api: Caller, vmhost: FakeHost) -> None:
    """The start's clean-up fails, the delete comes after it all the same."""
    made = api.post("/workspace", {}).json()["workspace"]["id"]
    api.post(f"/workspace/{made}/stop")
    vmhost.driver.delays = {"start": 0.2}
    vmhost.driver.fail_next("destroy", BackendUnavailable("away"))
    workspace_start(workspace=Workspace.objects.get(), actor="test")
    assert api.delete(f"/workspace/{made}").status_code == 200
    assert_gone(api, vmhost, made)
