"""Suspending, activating and deleting a namespace that has workspaces, on a host with the fake driver."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from namespaces import services
from namespaces.models import Namespace, NamespaceActivity
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace
from tests.world import assert_error
from vmbackend.driver import MachineState
from vmbackend.models import Host
from workspaces import namespace_members
from workspaces.models import Activity, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = {"cpus": 0.1, "memory_mb": 128, "disk_size_mb": 64}


@pytest.fixture
def team(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


def create(api: Caller, namespace: str = "team") -> str:
    answer = api.post("/workspace", {"namespace": namespace, "config": SMALL})
    assert answer.status_code == 201, answer.json()
    return answer.json()["workspace"]["id"]


def status(key: str) -> str:
    return Workspace.objects.get(pk=key).status


def test_a_suspension_stops_what_runs_and_refuses_what_would(api: Caller, vmhost: FakeHost, team: Namespace) -> None:
    inside, asleep, outside = create(api), create(api), create(api, "default")
    vmhost.settle()
    api.post(f"/workspace/{asleep}/stop")
    answer = api.post("/namespaces/team/suspend").json()
    vmhost.settle()
    assert (answer["success"], answer["stoppedWorkspaces"]) == (True, 1)
    assert (status(inside), status(outside)) == ("stopped", "running")
    assert vmhost.driver.state(inside) is MachineState.OFF
    assert_error(api.post("/workspace", {"namespace": "team"}), 403, "namespace_suspended")
    for word in ("start", "restart", "resume"):
        answer = api.post(f"/workspace/{inside}/{word}")
        assert answer.json()["code"] in ("namespace_suspended", "invalid_state"), word
    assert_error(api.post(f"/workspace/{inside}/start"), 403, "namespace_suspended")
    assert api.get(f"/workspace/{inside}").status_code == 200
    assert api.delete(f"/workspace/{asleep}").status_code in (200, 202)
    assert api.post("/namespaces/team/suspend").json()["stoppedWorkspaces"] == 0

    body = api.post("/namespaces/team/activate").json()
    assert (body["data"]["status"], body["success"]) == ("active", True)
    assert status(inside) == "stopped", "workspaces are not started again"
    assert api.post(f"/workspace/{inside}/start").status_code == 200
    actions = NamespaceActivity.objects.filter(namespace_id=team.pk).values_list("action", flat=True)
    assert list(actions) == ["activated", "suspended"]


def test_what_starts_while_the_namespace_is_suspended_is_stopped_by_the_sweep(
    api: Caller, vmhost: FakeHost, team: Namespace
) -> None:
    row = make_workspace(api.account, namespace=team, status=Status.STARTING)
    assert api.post("/namespaces/team/suspend").json()["stoppedWorkspaces"] == 0
    assert namespace_members.stop_suspended_members() == 0
    Workspace.objects.filter(pk=row.pk).update(status=Status.RUNNING, host=Host.objects.get())
    assert namespace_members.stop_suspended_members() == 1
    assert status(row.pk) in ("stopping", "stopped")


def test_what_runs_where_a_quota_stops_it_is_stopped_by_the_sweep(
    api: Caller, vmhost: FakeHost, team: Namespace
) -> None:
    key = create(api)
    vmhost.settle()
    Namespace.objects.filter(pk=team.pk).update(suspended_by_quota=True, status="suspended")
    assert namespace_members.stop_suspended_members() == 0
    Namespace.objects.filter(pk=team.pk).update(quota_stops_workspaces=True)
    assert namespace_members.stop_suspended_members() == 1
    vmhost.settle()
    assert status(key) == "stopped"


def test_a_planned_restart_in_a_suspended_namespace_is_cancelled(
    api: Caller, vmhost: FakeHost, team: Namespace
) -> None:
    row = make_workspace(api.account, namespace=team, status=Status.STOPPED, restart_due_at=team.created_at)
    api.post("/namespaces/team/suspend")
    row.refresh_from_db()
    assert (row.status, row.restart_due_at) == ("stopped", None)


def test_the_default_namespace_is_neither_suspended_nor_deleted(api: Caller) -> None:
    assert_error(api.post("/namespaces/default/suspend"), 409, "conflict")
    assert_error(api.put("/namespaces/default", {"status": "suspended"}), 409, "conflict")
    assert_error(api.delete("/namespaces/default"), 409, "conflict")
    assert Namespace.objects.get(account=api.account).status == "active"


def test_the_status_is_also_set_by_an_update(api: Caller, team: Namespace) -> None:
    assert api.put("/namespaces/team", {"status": "inactive"}).json()["data"]["status"] == "inactive"
    assert api.put("/namespaces/team", {"status": "suspended"}).json()["data"]["status"] == "suspended"
    assert_error(api.put("/namespaces/team", {"name": "Changed", "status": "inactive"}), 409, "invalid_state")
    assert api.get("/namespaces/team").json()["data"]["name"] == "Team", "nothing is half done"
    assert api.put("/namespaces/team", {"status": "active"}).json()["data"]["status"] == "active"
    team.refresh_from_db()
    assert not team.suspended_by_hand


def test_what_a_quota_suspended_stays_so_when_it_is_activated(api: Caller, team: Namespace) -> None:
    Namespace.objects.filter(pk=team.pk).update(suspended_by_quota=True, suspended_by_hand=True, status="suspended")
    body = api.post("/namespaces/team/activate").json()
    assert (body["data"]["status"], body["message"]) == ("suspended", "Still suspended by a quota.")
    assert_error(api.post("/workspace", {"namespace": "team"}), 402, "quota_exceeded")


def test_stop_workspaces_leaves_the_status(api: Caller, vmhost: FakeHost, team: Namespace) -> None:
    keys = [create(api), create(api)]
    vmhost.settle()
    assert api.post("/namespaces/team/stop-workspaces").json()["stoppedWorkspaces"] == 2
    vmhost.settle()
    assert [status(key) for key in keys] == ["stopped", "stopped"]
    assert api.get("/namespaces/team").json()["data"]["status"] == "active"


def test_a_deletion_moves_the_workspaces_to_the_default_one(api: Caller, vmhost: FakeHost, team: Namespace) -> None:
    key = create(api)
    body = api.delete("/namespaces/team", {"deleteWorkspaces": False}).json()
    assert (body["success"], body["movedWorkspaces"]) == (True, 1)
    assert api.get(f"/workspace/{key}").json()["workspace"]["namespace"] == "default"
    assert Activity.objects.filter(workspace_id=key, action="moved").exists()
    assert_error(api.get("/namespaces/team"), 404, "not_found")
    assert status(key) == "running"


def test_a_deletion_destroys_the_workspaces_if_asked_to(api: Caller, vmhost: FakeHost, team: Namespace) -> None:
    keys, kept = [create(api), create(api)], create(api, "default")
    body = api.delete("/namespaces/team", {"deleteWorkspaces": True}).json()
    assert body["deletedWorkspaces"] == 2
    assert_error(api.get("/namespaces/team"), 404, "not_found")
    assert_error(api.post("/workspace", {"namespace": "team"}), 404, "not_found")
    assert_error(api.post(f"/workspace/{keys[0]}/restart"), 409, "invalid_state")
    again = api.post("/namespaces", {"name": "Team"}).json()["data"]
    assert again["id"] != team.pk, "the slug is free"
    while services.deletions_continue():
        vmhost.settle()
    assert list(Workspace.objects.values_list("pk", flat=True)) == [kept]
    assert not Namespace.objects.filter(pk=team.pk).exists()
    assert [vmhost.driver.state(key) for key in keys] == [MachineState.ABSENT] * 2


def test_a_deletion_that_was_interrupted_is_continued(
    api: Caller, vmhost: FakeHost, team: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        create(api)
    api.delete("/namespaces/team", {"deleteWorkspaces": True})
    with monkeypatch.context() as patched:
        patched.setattr(namespace_members, "BATCH", 1)
        assert services.deletions_continue() == 1
        vmhost.settle()
    while services.deletions_continue():
        vmhost.settle()
    assert not Workspace.objects.exists()


def test_last_activity_is_written_when_something_is_created_or_started(
    api: Caller, vmhost: FakeHost, team: Namespace
) -> None:
    key = create(api)
    first = api.get("/namespaces/team").json()["data"]["last_active_at"]
    assert first is not None
    api.post(f"/workspace/{key}/stop")
    Namespace.objects.filter(pk=team.pk).update(last_active_at=None)
    api.post(f"/workspace/{key}/start")
    assert api.get("/namespaces/team").json()["data"]["last_active_at"] is not None


def test_a_host_that_does_not_answer_keeps_no_other_machine_from_being_stopped(
    api: Caller, vmhost: FakeHost, team: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_members, "BATCH", 1)
    lost = make_host("lost", seen=timezone.now() - timedelta(minutes=5))
    here = make_workspace(api.account, namespace=team, host=Host.objects.exclude(name="lost").get())
    for _ in range(2):
        make_workspace(api.account, namespace=team, host=lost)
    Namespace.objects.filter(pk=team.pk).update(suspended_by_hand=True, status="suspended")
    assert namespace_members.stop_suspended_members() == 1
    assert status(here.pk) in ("stopping", "stopped")


def test_the_sweep_stops_nothing_more_once_the_suspension_has_ended(
    api: Caller, vmhost: FakeHost, team: Namespace
) -> None:
    host = Host.objects.get()
    rows = [make_workspace(api.account, namespace=team, host=host) for _ in range(2)]
    Namespace.objects.filter(pk=team.pk).update(suspended_by_hand=True, status="suspended")

    def activate_after_the_first(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        done = execute(sql, params, many, context)
        if sql.startswith('INSERT INTO "workspaces_operation"'):
            Namespace.objects.filter(pk=team.pk).update(suspended_by_hand=False, status="active")
        return done

    with connection.execute_wrapper(activate_after_the_first):
        assert namespace_members.stop_suspended_members() == 1
    assert sum(status(row.pk) == "running" for row in rows) == 1


def test_what_cannot_be_deleted_now_keeps_nothing_else_from_being_deleted(
    api: Caller, vmhost: FakeHost, team: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_members, "BATCH", 2)
    lost = make_host("lost", seen=timezone.now() - timedelta(minutes=5))
    here = create(api)
    vmhost.settle()
    for _ in range(2):  # newer, so they come first
        make_workspace(api.account, namespace=team, host=lost, status=Status.DELETING, ready=False)
    api.delete("/namespaces/team", {"deleteWorkspaces": True})
    assert services.deletions_continue() == 1
    vmhost.settle()
    assert not Workspace.objects.filter(pk=here).exists()


def test_a_forced_start_of_what_still_runs_in_a_suspended_namespace_is_refused(
    api: Caller, vmhost: FakeHost, team: Namespace
) -> None:
    key = create(api)
    vmhost.settle()
    Namespace.objects.filter(pk=team.pk).update(suspended_by_hand=True, status="suspended")
    assert_error(api.post(f"/workspace/{key}/start", {"force": True}), 403, "namespace_suspended")
    assert api.post(f"/workspace/{key}/start").status_code == 200, "without force it changes nothing"
