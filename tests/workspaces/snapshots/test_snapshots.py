"""Making, reading, changing and deleting snapshots."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Plan
from accounts.scopes import Scope
from tests.threads import run_at_once
from tests.workspaces.snapshots.conftest import Parent
from tests.workspaces.workspace_states import bring, status_of
from vmbackend.errors import CapacityExceeded
from workspaces.models import Activity, Snapshot, Workspace
from workspaces.snapshot_rows import REMOVE_TASK
from workspaces.snapshots.services import NewSnapshot, snapshot_create
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_running_workspace_is_kept_and_goes_on(parent: Parent) -> None:
    before = Workspace.objects.get()
    made = parent.keep(name="one")
    assert re.fullmatch(r"snap_[a-z2-7]{16}", made["id"])
    assert (made["name"], made["status"], made["memory"], made["usable"]) == ("one", "ready", True, True)
    assert (made["workspace_id"], made["namespace"], made["host"]) == (parent.id, "default", "local")
    assert made["size_bytes"] > 512 << 20
    assert made["resources"] == {"cpus": 1.0, "memory_mb": 512, "disk_size_mb": 512}
    after = Workspace.objects.get()
    assert (after.status, after.ready, after.started_at) == (before.status, before.ready, before.started_at)
    assert parent.stored() == {made["id"]}
    assert Activity.objects.filter(action="snapshot_created", workspace_id=parent.id).count() == 1
    assert Snapshot.objects.get().pool_mb == -(-made["size_bytes"] >> 20)


def test_a_name_is_made_from_the_workspaces(parent: Parent) -> None:
    names = {parent.keep()["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.match(r"parent \d{4}-", name) for name in names)


@pytest.mark.parametrize(
    ("after", "status"), [("resume", Status.RUNNING), ("paused", Status.PAUSED), ("stop", Status.STOPPED)]
)
def test_the_workspace_is_left_as_asked(parent: Parent, after: str, status: Status) -> None:
    assert parent.keep(after=after)["memory"] is True
    assert status_of(parent.id) == status


@pytest.mark.parametrize("status", [Status.PAUSED, Status.SLEEPING, Status.STOPPED])
@pytest.mark.parametrize("after", ["resume", "paused", "stop"])
def test_one_that_does_not_run_is_kept(parent: Parent, status: Status, after: str) -> None:
    bring(parent.api, parent.vmhost, parent.id, status)
    made = parent.keep(after=after)
    assert made["memory"] is (status != Status.STOPPED)
    assert status_of(parent.id) == (Status.STOPPED if after == "stop" else status)


def test_one_that_is_to_be_stopped_is_not_started_again(parent: Parent) -> None:
    bring(parent.api, parent.vmhost, parent.id, Status.STOPPED)
    due = timezone.now() + timedelta(hours=1)
    for after, left in (("resume", due), ("stop", None)):
        Workspace.objects.update(restart_due_at=due, user_requested_stop=False)
        parent.keep(after=after)
        row = Workspace.objects.get()
        assert (row.status, row.restart_due_at, row.user_requested_stop) == (Status.STOPPED, left, after == "stop")


def test_one_that_is_deleted_before_it_is_made_leaves_nothing(parent: Parent) -> None:
    parent.vmhost.hold_tasks()
    made = parent.keep(status=202, wait_ready=False)
    assert parent.api.delete(f"/snapshots/{made['id']}").status_code == 200
    removals = [task for task in parent.vmhost.held_tasks or [] if task[0] == REMOVE_TASK]
    for _, args, _ in removals:  # before the operation has ended
        current_app.tasks[REMOVE_TASK](*args)
    parent.vmhost.held_tasks = [task for task in parent.vmhost.held_tasks or [] if task not in removals]
    parent.vmhost.release_tasks()
    assert parent.stored() == set()
    assert (Snapshot.objects.count(), status_of(parent.id)) == (0, Status.RUNNING)


def test_memory_may_be_left_out(parent: Parent) -> None:
    assert parent.keep(memory=False)["memory"] is False


def test_snapshots_are_listed_newest_first_and_filtered(parent: Parent) -> None:
    one, two = parent.keep(name="one"), parent.keep(name="two")
    for path in ("/snapshots", f"/workspace/{parent.id}/snapshots"):
        body = parent.api.get(path).json()
        assert [each["id"] for each in body["snapshots"]] == [two["id"], one["id"]]
        assert (body["total"], body["page"], body["limit"]) == (2, 1, 20)
    for query in ("search=on", "limit=1&page=2"):
        found = parent.api.get(f"/snapshots?{query}").json()["snapshots"]
        assert [each["name"] for each in found] == ["one"], query
    for query in ("status=failed", "workspace_id=ws_none", "namespace=other"):
        assert parent.api.get(f"/snapshots?{query}").json()["snapshots"] == [], query
    assert parent.api.get(f"/snapshots/{one['id']}").json()["snapshot"] == one


def test_name_and_time_to_live_are_changed(parent: Parent) -> None:
    made = parent.keep(name="one", ttl="1h")
    assert made["expires_at"] is not None
    path = f"/snapshots/{made['id']}"
    changed = parent.api.send("PATCH", path, {"name": "other", "ttl": None}).json()["snapshot"]
    assert (changed["name"], changed["expires_at"]) == ("other", None)
    assert parent.api.get(path).json()["snapshot"] == changed
    parent.keep(name="one")
    answer = parent.api.send("PATCH", path, {"name": "one"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_a_deleted_one_is_gone_with_its_files_and_its_name_is_free(parent: Parent) -> None:
    made = parent.keep(name="one")
    assert parent.api.delete(f"/snapshots/{made['id']}").status_code == 200
    assert parent.stored() == set()
    assert not Snapshot.objects.exists()
    assert parent.api.get(f"/snapshots/{made['id']}").status_code == 404
    assert parent.api.delete(f"/snapshots/{made['id']}").status_code == 404
    assert parent.keep(name="one")["status"] == "ready"


def test_one_that_failed_leaves_name_and_place_to_the_retry(parent: Parent) -> None:
    Plan.objects.update(max_snapshots=1)
    parent.vmhost.driver.fail_next("snapshot", CapacityExceeded("It is full."), times=2)
    path = f"/workspace/{parent.id}/snapshot"
    assert [parent.api.post(path, {"name": "one"}).status_code for _ in range(2)] == [503, 503]
    made = parent.keep(name="one")
    shown = parent.api.get("/snapshots").json()["snapshots"]
    assert [each["status"] for each in shown] == ["ready", "failed", "failed"]
    parent.set_state("second")
    assert parent.api.post(f"/workspace/{parent.id}/restore", {"snapshot": "one"}).status_code == 200
    assert parent.state() == ("first", "first")
    assert parent.api.post(path, {"name": "two"}).json()["code"] == "SNAPSHOT_LIMIT_REACHED"
    assert parent.api.delete(f"/snapshots/{made['id']}").status_code == 200
    answer = parent.api.post("/workspace", {"snapshot": "one"})
    assert (answer.status_code, answer.json()["code"]) == (409, "snapshot_not_ready")


def test_of_two_at_once_one_gets_the_name_of_one_that_failed(parent: Parent) -> None:
    other = parent.create(name="other")["id"]
    parent.vmhost.driver.fail_next("snapshot", CapacityExceeded("It is full."))
    assert parent.api.post(f"/workspace/{parent.id}/snapshot", {"name": "one"}).status_code == 503
    parent.vmhost.hold_tasks()
    actor, new = Actor(parent.api.account, Scope.ACCOUNT, "cred", "label"), NewSnapshot(name="one")
    rows = [Workspace.objects.get(pk=key) for key in (parent.id, other)]
    outcomes = run_at_once(2, lambda number: snapshot_create(actor=actor, workspace=rows[number], new=new))
    assert sorted(outcomes) == ["Conflict", "done"]
    with pytest.raises(IntegrityError), transaction.atomic():  # also for one that is not yet made
        Snapshot.objects.filter(status="failed").update(status="creating")
    parent.vmhost.release_tasks()
    assert len(parent.stored()) == 1


@pytest.mark.parametrize(("keep", "left"), [({}, 0), ({"keep_snapshots": True}, 1)])
def test_the_workspaces_delete_takes_them_unless_they_are_kept(parent: Parent, keep: Any, left: int) -> None:
    made = parent.keep(name="one")
    assert parent.api.delete(f"/workspace/{parent.id}", keep).status_code == 200
    assert len(parent.stored()) == left
    found = parent.api.get("/snapshots").json()["snapshots"]
    assert [(each["id"], each["workspace_id"]) for each in found] == [(made["id"], None)] * left


def test_kept_snapshots_by_the_query_and_used_without_their_workspace(parent: Parent) -> None:
    made = parent.keep(name="one")
    assert parent.api.delete(f"/workspace/{parent.id}?keep_snapshots=true").status_code == 200
    copy = parent.create(snapshot="one")
    assert parent.state(copy["id"]) == ("first", "first")
    assert parent.api.get(f"/snapshots/{made['id']}").json()["snapshot"]["dependants"] == 1
