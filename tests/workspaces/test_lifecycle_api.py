"""Lifecycle: read, mode, and changes while an operation is in progress (specification, Lifecycle object)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Credential
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.expiry import expires_in
from tests.workspaces.rows import make_host, make_workspace
from tests.workspaces.workspace_states import make, status_of
from vmbackend.models import Host
from workspaces.models import Workspace
from workspaces.power import workspace_start
from workspaces.states import Status

pytestmark = pytest.mark.django_db

DOCUMENTED = {
    "success", "mode", "status", "restart_policy", "max_restarts", "restart_info", "ttl", "ttl_action",
    "remove_on_exit", "uptime", "idle", "ttl_expires_at", "snapshot_supported", "snapshot_unavailable_reason",
}  # fmt: skip
OFF = {"suspend_after": 0, "stop_after": 0, "enabled": False}


def test_the_lifecycle_of_a_permanent_workspace(api: Caller) -> None:
    row = make_workspace(api.account, mode="permanent", restart_policy="always", max_restarts=2, host=make_host())
    body = api.get(f"/workspace/{row.pk}/lifecycle").json()
    assert set(body) == DOCUMENTED
    assert (body["mode"], body["status"], body["restart_policy"], body["max_restarts"]) == (
        "permanent", "running", "always", 2,
    )  # fmt: skip
    assert (body["ttl"], body["ttl_action"], body["ttl_expires_at"], body["remove_on_exit"]) == (
        None,
        None,
        None,
        False,
    )
    assert body["restart_info"] == {
        "count": 0, "last_exit_code": None, "last_reason": None, "last_restart_at": None, "history": [],
    }  # fmt: skip
    assert (body["idle"], body["snapshot_supported"], body["snapshot_unavailable_reason"]) == (OFF, True, None)


def test_the_lifecycle_of_a_temporary_workspace(api: Caller) -> None:
    expires = timezone.now() + timedelta(seconds=90)
    row = make_workspace(api.account, ttl_seconds=90, ttl_action="pause", ttl_expires_at=expires, remove_on_exit=True)
    body = api.get(f"/workspace/{row.slug}/lifecycle").json()
    assert (body["mode"], body["ttl"], body["ttl_action"], body["remove_on_exit"]) == (
        "temporary",
        "90s",
        "pause",
        True,
    )
    assert expires_in(body, 90)
    assert body["ttl_expires_at"].endswith("Z")


def test_restarts_are_returned_with_their_history(api: Caller) -> None:
    history = [{"at": "2026-01-01T00:00:00.000Z", "exit_code": 3, "reason": "exited"}]
    last = timezone.now()
    row = make_workspace(
        api.account, restart_count=4, last_exit_code=3, last_exit_reason="exited", last_restart_at=last,
        restart_history=history, started_at=last - timedelta(seconds=50),
    )  # fmt: skip
    body = api.get(f"/workspace/{row.pk}/lifecycle").json()
    info = body["restart_info"]
    assert (info["count"], info["last_exit_code"], info["last_reason"], info["history"]) == (
        4,
        3,
        "exited",
        history,
    )
    assert info["last_restart_at"].endswith("Z")
    assert 50 <= body["uptime"] <= 52


def test_a_host_that_keeps_no_memory_is_reported(api: Caller) -> None:
    host = make_host()
    Host.objects.update(snapshots=False)
    row = make_workspace(api.account, mode="permanent", host=host)
    body = api.get(f"/workspace/{row.pk}/lifecycle").json()
    assert body["snapshot_supported"] is False
    assert body["snapshot_unavailable_reason"]
    answer = api.put(f"/workspace/{row.pk}/lifecycle/idle", {"suspend_after": "10m"})
    assert (answer.status_code, answer.json()["code"]) == (409, "idle_not_supported")
    assert api.put(f"/workspace/{row.pk}/lifecycle/idle", {"suspend_after": 0}).status_code == 200


@pytest.mark.parametrize("path", ["lifecycle", "resources", "ssh"])
def test_reads_cost_the_same_whatever_there_is(api: Caller, path: str) -> None:
    host = make_host()
    row = make_workspace(api.account, host=host, ip="10.200.0.2")
    Credential.objects.update(last_used_at=timezone.now())

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert api.get(f"/workspace/{row.pk}/{path}").status_code == 200
        return len(seen)

    before = count()
    for number in range(20):
        make_workspace(api.account, host=host, ip=f"10.200.1.{number}")
    entry = {"at": "2026-01-01T00:00:00.000Z", "exit_code": 1, "reason": "exited"}
    Workspace.objects.filter(pk=row.pk).update(restart_history=[entry] * 20, suspend_after=120, memory_mb=256)
    assert count() == before <= 3


def test_a_temporary_workspace_is_made_permanent(api: Caller) -> None:
    row = make_workspace(api.account, ttl_seconds=60, ttl_expires_at=timezone.now(), remove_on_exit=True)
    body = api.post(f"/workspace/{row.pk}/lifecycle/permanent").json()
    assert set(body) == DOCUMENTED
    assert (body["mode"], body["restart_policy"]) == ("permanent", "always")
    assert (body["ttl"], body["ttl_expires_at"], body["remove_on_exit"]) == (None, None, False)
    assert body == {**api.get(f"/workspace/{row.pk}/lifecycle").json(), "uptime": body["uptime"]}
    assert api.get(f"/workspace/{row.pk}").json()["workspace"]["mode"] == "permanent"


@pytest.mark.parametrize("policy", ["no", "on-failure", "always", "unless-stopped"])
def test_permanent_takes_each_restart_policy(api: Caller, policy: str) -> None:
    row = make_workspace(api.account)
    body = api.post(f"/workspace/{row.pk}/lifecycle/permanent", {"restart_policy": policy}).json()
    assert body["restart_policy"] == policy


@pytest.mark.parametrize("policy", ["never", "", None, 1, ["always"], True])
def test_permanent_refuses_other_policies(api: Caller, policy: Any) -> None:
    row = make_workspace(api.account)
    answer = api.post(f"/workspace/{row.pk}/lifecycle/permanent", {"restart_policy": policy})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["restart_policy"])
    assert Workspace.objects.get().mode == "temporary"


def test_a_permanent_workspace_is_made_temporary(api: Caller) -> None:
    row = make_workspace(
        api.account, mode="permanent", restart_policy="always", suspend_after=600, idle_due_at=timezone.now()
    )
    sent = {"ttl": "1h", "ttl_action": "remove", "remove_on_exit": True}
    body = api.post(f"/workspace/{row.pk}/lifecycle/temporary", sent).json()
    assert set(body) == DOCUMENTED
    assert (body["mode"], body["restart_policy"], body["idle"]) == ("temporary", "no", OFF)
    assert (body["ttl"], body["ttl_action"], body["remove_on_exit"]) == ("1h", "remove", True)
    assert expires_in(body, 3600)
    row.refresh_from_db()
    assert row.idle_due_at is None


def test_temporary_has_its_defaults(api: Caller) -> None:
    row = make_workspace(api.account, mode="permanent")
    body = api.post(f"/workspace/{row.pk}/lifecycle/temporary", {"ttl": 90}).json()
    assert (body["ttl"], body["ttl_action"], body["remove_on_exit"]) == ("90s", "stop", False)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("status", [Status.RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING])
def test_changes_are_hot_and_change_no_state(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status)
    machine = vmhost.driver.state(made)
    assert api.post(f"/workspace/{made}/lifecycle/permanent").json()["status"] == status
    assert api.put(f"/workspace/{made}/lifecycle/idle", {"suspend_after": "2m"}).status_code == 200
    assert api.post(f"/workspace/{made}/lifecycle/temporary", {"ttl": "1h"}).json()["status"] == status
    assert api.post(f"/workspace/{made}/ping").status_code == 200
    assert (status_of(made), vmhost.driver.state(made)) == (status, machine)


@pytest.mark.django_db(transaction=True)
def test_a_change_while_an_operation_goes_on_outlives_it(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.STOPPED, config={"ttl": "1h"})
    vmhost.driver.delays = {"start": 0.5}
    workspace_start(workspace=Workspace.objects.get(), actor="test")
    assert api.post(f"/workspace/{made}/lifecycle/permanent").status_code == 200
    vmhost.settle()
    body = api.get(f"/workspace/{made}/lifecycle").json()
    assert (body["status"], body["mode"], body["ttl_expires_at"]) == ("running", "permanent", None)
