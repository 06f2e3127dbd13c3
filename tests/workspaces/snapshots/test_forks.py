"""Forks: copies of a workspace as it is."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Plan
from tests.workspaces.snapshots.conftest import Parent
from tests.workspaces.workspace_states import bring, until
from vmbackend.errors import CapacityExceeded, CopyUnproven
from workspaces.crud.services import workspace_delete
from workspaces.models import Activity, Operation, Snapshot, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def fork(parent: Parent, status: int = 201, **body: Any) -> Any:
    answer = parent.api.post(f"/workspace/{parent.id}/fork", body)
    assert answer.status_code == status, answer.json()
    return answer.json()


def test_a_fork_goes_on_and_is_another_workspace(parent: Parent) -> None:
    [entry] = fork(parent)["forks"]
    copy = entry["workspace"]
    assert parent.state(copy["id"]) == parent.state() == ("first", "first")
    assert (copy["name"], copy["status"], copy["started_from"]) == ("parent", "running", "fork")
    assert parent.vmhost.driver.generation_of(copy["id"])
    assert parent.stored() == set()
    assert not Snapshot.objects.exists()
    assert parent.api.get("/snapshots").json()["snapshots"] == []
    assert Activity.objects.filter(action="forked", workspace_id=parent.id).count() == 1
    assert Activity.objects.filter(action="forked_from", workspace_id=copy["id"]).count() == 1


def test_several_are_numbered_and_differ(parent: Parent) -> None:
    forks = fork(parent, count=3, name="copy", env=["NEW=1"], metadata={"a": 1})["forks"]
    copies = [entry["workspace"] for entry in forks]
    assert [copy["name"] for copy in copies] == ["copy-1", "copy-2", "copy-3"]
    for field in ("id", "slug", "ip"):
        assert len({copy[field] for copy in copies}) == 3
    assert len({parent.vmhost.driver.generation_of(copy["id"]) for copy in copies}) == 3
    assert all(row.metadata == {"a": 1} for row in Workspace.objects.exclude(pk=parent.id))
    assert parent.stored() == set()


@pytest.mark.parametrize("status", [Status.PAUSED, Status.SLEEPING, Status.STOPPED])
def test_one_that_does_not_run_is_forked_and_stays(parent: Parent, status: Status) -> None:
    bring(parent.api, parent.vmhost, parent.id, status)
    [entry] = fork(parent)["forks"]
    assert entry["workspace"]["started_from"] == ("boot" if status == Status.STOPPED else "fork")
    assert Workspace.objects.get(pk=parent.id).status == status
    assert parent.run("cat note", entry["workspace"]["id"]) == "first"


def test_one_that_fails_has_an_error_and_the_others_are_made(parent: Parent) -> None:
    parent.vmhost.driver.fail_next("load", CopyUnproven("It did not answer."))
    forks = fork(parent, count=3)["forks"]
    errors = [entry["error"] for entry in forks if "error" in entry]
    assert [error["code"] for error in errors] == ["VM_UNAVAILABLE"]
    assert len([entry for entry in forks if "workspace" in entry]) == 2
    assert parent.stored() == set()


def test_where_none_is_made_the_answer_is_the_first_error(parent: Parent) -> None:
    parent.vmhost.driver.fail_next("snapshot", CapacityExceeded("The host lacks disk space."))
    body = fork(parent, status=503, count=2)
    assert body["code"] == "VM_UNAVAILABLE"
    lacks = {"reason": "no_room", "resource": "disk_size_mb"}
    assert body["details"] | lacks == body["details"]
    errors = [entry["error"] for entry in body["details"]["forks"]]
    assert [(error["code"], error["details"] | lacks == error["details"]) for error in errors] == [
        ("VM_UNAVAILABLE", True)
    ] * 2
    assert parent.state() == ("first", "first")
    assert parent.stored() == set()
    assert not Snapshot.objects.exists()


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"max_workspaces": 3}, "SANDBOX_LIMIT_REACHED"),
        ({"pool_memory_mb": 1536}, "POOL_LIMIT_REACHED"),
        ({"running_memory_mb": 1536}, "RUNNING_POOL_REACHED"),
    ],
)
def test_quota_has_room_for_all_or_none(parent: Parent, limit: dict[str, int], code: str) -> None:
    Plan.objects.update(**limit)
    assert fork(parent, status=402, count=3)["code"] == code
    assert Workspace.objects.count() == 1
    assert not Snapshot.objects.exists()
    assert Operation.objects.filter(kind="fork").count() == 0
    assert len(fork(parent, count=2)["forks"]) == 2


def test_a_parent_that_is_deleted_meanwhile_leaves_no_half(parent: Parent) -> None:
    parent.vmhost.hold_tasks()
    ids = [entry["workspace"]["id"] for entry in fork(parent, count=2, wait_ready=False)["forks"]]
    workspace_delete(workspace=Workspace.objects.get(pk=parent.id), actor="test")
    parent.vmhost.release_tasks()
    until(lambda: not Workspace.objects.filter(pk=parent.id).exists())
    parent.vmhost.settle()
    assert {row.status for row in Workspace.objects.filter(pk__in=ids)} == {"failed"}
    assert parent.stored() == set()
