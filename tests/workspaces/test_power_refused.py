"""Power calls that are refused, or fail: the answer, and what is left (specification, Lifecycle and power)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.test_power import made
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.host_states import LEASE_FOR
from vmbackend.models import Host
from workspaces.models import Activity, Operation, Workspace
from workspaces.power import workspace_start, workspace_stop
from workspaces.states import Status

__all__ = ["made"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("status", "action", "code"),
    [
        (Status.FAILED, "start", "invalid_state"),
        (Status.FAILED, "stop", "invalid_state"),
        (Status.LOST, "stop", "invalid_state"),
        (Status.DESTROYED, "start", "vm_missing"),
        (Status.DESTROYED, "stop", "invalid_state"),
        (Status.PAUSING, "stop", "operation_in_progress"),
        (Status.CREATING, "start", "operation_in_progress"),
        (Status.QUEUED, "stop", "operation_in_progress"),
    ],
)
def test_operations_in_an_invalid_state_are_409(api: Caller, made: str, status: Status, action: str, code: str) -> None:
    Workspace.objects.update(status=status, ready=False)
    answer = api.post(f"/workspace/the-box/{action}")
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    if code != "vm_missing":
        assert answer.json()["details"]["status"] == status
    assert Workspace.objects.get().status == status


@pytest.mark.parametrize("going_on", ["start", "stop"])
def test_one_operation_at_a_time(api: Caller, vmhost: FakeHost, made: str, going_on: str) -> None:
    if going_on == "start":
        api.post("/workspace/the-box/stop")
    vmhost.hold_tasks()
    service = workspace_start if going_on == "start" else workspace_stop
    service(workspace=Workspace.objects.get(), actor="test")
    for action in ("start", "stop"):
        answer = api.post(f"/workspace/the-box/{action}")
        assert (answer.status_code, answer.json()["code"]) == (409, "operation_in_progress")
    vmhost.release_tasks()
    vmhost.settle()
    assert Workspace.objects.get().status == (Status.RUNNING if going_on == "start" else Status.STOPPED)


def test_a_full_running_pool_refuses_a_start(new_account: Callable[..., Caller], vmhost: FakeHost) -> None:
    api = new_account(plan="tiny")
    small = {"cpus": 0.5, "memory_mb": 512, "disk_size_mb": 64}
    first = api.post("/workspace", {"config": small}).json()["workspace"]["id"]
    api.post(f"/workspace/{first}/stop")
    second = api.post("/workspace", {"config": {**small, "memory_mb": 768}}).json()["workspace"]["id"]
    answer = api.post(f"/workspace/{first}/start")
    assert (answer.status_code, answer.json()["code"]) == (402, "RUNNING_POOL_REACHED")
    assert answer.json()["details"] == {"resource": "memory_mb", "current": 768, "requested": 512, "max": 1024}
    api.post(f"/workspace/{second}/stop")
    assert api.post(f"/workspace/{first}/start").status_code == 200


@pytest.mark.parametrize("action", ["start", "restart", "pause", "reinstall"])
def test_a_silent_or_troubled_host_is_vm_unavailable(api: Caller, vmhost: FakeHost, made: str, action: str) -> None:
    if action == "start":
        api.post("/workspace/the-box/stop")
    before = Workspace.objects.get().status
    for trouble in (
        {"lease_until": timezone.now() - timedelta(seconds=1)},
        {"lease_until": timezone.now() + LEASE_FOR, "problem": "The hypervisor does not answer."},
    ):
        Host.objects.update(**trouble)
        answer = api.post(f"/workspace/the-box/{action}")
        assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
        assert Workspace.objects.get().status == before
    assert not Operation.objects.filter(kind=action, state="queued").exists()


def test_a_host_without_memory_refuses_a_start(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post("/workspace/the-box/stop")
    Host.objects.update(memory_mb=600)
    answer = api.post("/workspace/the-box/start")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")


@pytest.mark.parametrize(
    ("by_hand", "by_quota", "status", "code"),
    [
        (True, False, 403, "namespace_suspended"),
        (False, True, 402, "quota_exceeded"),
        (True, True, 403, "namespace_suspended"),
    ],
)
def test_a_suspended_namespace_refuses_creates_and_starts_only(
    api: Caller, made: str, by_hand: bool, by_quota: bool, status: int, code: str
) -> None:
    api.account.namespaces.update(status="suspended", suspended_by_hand=by_hand, suspended_by_quota=by_quota)
    assert api.post("/workspace/the-box/stop").status_code == 200
    for answer in (api.post("/workspace/the-box/start"), api.post("/workspace", {})):
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert api.get("/workspace/the-box").status_code == 200
    assert api.delete("/workspace/the-box").status_code == 200


@pytest.mark.parametrize("action", ["start", "restart", "resume"])
@pytest.mark.parametrize(
    ("by_hand", "status", "code"), [(True, 403, "namespace_suspended"), (False, 402, "quota_exceeded")]
)
def test_a_suspended_namespace_refuses_before_the_state_is_looked_at(
    api: Caller, action: str, by_hand: bool, status: int, code: str
) -> None:
    api.account.namespaces.update(status="suspended", suspended_by_hand=by_hand, suspended_by_quota=not by_hand)
    for state in Status.values:
        row = make_workspace(api.account, status=state, slug=f"in-{state}")
        answer = api.post(f"/workspace/{row.pk}/{action}")
        if (action, state) == ("start", Status.RUNNING):
            assert answer.status_code == 200, "it changes nothing"
        elif state != Status.DELETING:
            assert (answer.status_code, answer.json()["code"]) == (status, code), state
        row.refresh_from_db()
        assert row.status == state


def test_a_failed_start_is_reported_and_can_be_repeated(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post("/workspace/the-box/stop")
    vmhost.driver.fail_next("start", CapacityExceeded("The host has not enough free memory."))
    answer = api.post("/workspace/the-box/start")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert answer.json()["message"] == "The host has not enough free memory."
    shown = api.get("/workspace/the-box").json()["workspace"]
    assert (shown["info"]["status"], shown["info"]["error"]["code"]) == ("stopped", "no_room")
    shown = api.post("/workspace/the-box/start").json()["workspace"]
    assert (shown["info"]["status"], shown["info"]["error"]) == ("running", None)


def test_a_stop_that_fails_leaves_the_workspace_running_and_is_forgotten_by_the_next(
    api: Caller, vmhost: FakeHost, made: str
) -> None:
    vmhost.driver.fail_next("shutdown", BackendUnavailable("The hypervisor is away."), times=3)
    answer = api.post("/workspace/the-box/stop")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    shown = api.get("/workspace/the-box").json()["workspace"]
    assert (shown["info"]["status"], shown["ready"]) == ("running", True)
    assert shown["info"]["error"]["code"] == "backend_unavailable"
    shown = api.post("/workspace/the-box/stop").json()["workspace"]
    assert (shown["info"]["status"], shown["info"]["error"]) == ("stopped", None)


def test_what_a_retry_cures_is_never_reported(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post("/workspace/the-box/stop")
    vmhost.driver.fail_next("start", BackendUnavailable("The connection broke."), times=2)
    shown = api.post("/workspace/the-box/start").json()["workspace"]
    assert (shown["info"]["status"], shown["info"]["error"]) == ("running", None)
    assert Operation.objects.get(kind="start").attempt == 3


def test_a_stubborn_guest_is_ended_hard_and_that_is_reported(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.ignore_power_button(made)
    assert api.post("/workspace/the-box/stop").json()["workspace"]["info"]["status"] == "stopped"
    assert "hard" in Activity.objects.filter(workspace_id=made, action="stopped").get().detail
