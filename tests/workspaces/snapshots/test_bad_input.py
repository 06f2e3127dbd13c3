"""Refusals of the routes of snapshots, after which nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Plan
from accounts.scopes import Scope
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.snapshots.conftest import Parent
from tests.workspaces.workspace_states import bring
from vmbackend.errors import CapacityExceeded, CopyUnproven
from workspaces.models import Snapshot, Workspace
from workspaces.snapshots.serializers import ForkRequest, RestoreRequest, SnapshotRequest
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def refused(answer: Any, status: int, code: str, field: str = "") -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert not field or field in body["details"], body
    return body


def test_wrong_fields_are_named(parent: Parent) -> None:
    parent.keep(name="kept", memory=False)
    path = f"/workspace/{parent.id}"
    for route, field, values in (
        ("snapshot", "name", ["", "x" * 129, "a\nb", "a\x00b", 1]),
        ("snapshot", "after", ["destroy", 1]),
        ("snapshot", "memory", ["yes", 1]),
        ("snapshot", "ttl", [0, -1, "soon"]),
        ("restore", "memory", ["yes"]),
        ("restore", "snapshot", [1]),
        ("fork", "count", [0, 17, "2", True, 1.5]),
        ("fork", "mode", ["other"]),
        ("fork", "metadata", [[], "x"]),
    ):
        for value in values:
            refused(parent.api.post(f"{path}/{route}", {field: value}), 400, "validation_error", field)
    refused(parent.api.post(f"{path}/restore", {"memory": True}), 400, "validation_error", "memory")
    assert (Workspace.objects.count(), Snapshot.objects.count()) == (1, 1)


@pytest.mark.parametrize("route", ["snapshot", "restore", "fork"])
def test_null_is_the_same_as_leaving_a_field_out(parent: Parent, route: str) -> None:
    request = {"snapshot": SnapshotRequest, "restore": RestoreRequest, "fork": ForkRequest}[route]
    parent.keep(name="kept")
    nothing = request(data={})
    assert nothing.is_valid()
    for sent in (dict.fromkeys(nothing.fields), *({name: None} for name in nothing.fields)):
        null = request(data=sent)
        assert null.is_valid(), null.errors
        assert null.validated_data == nothing.validated_data
    answer = parent.api.post(f"/workspace/{parent.id}/{route}", dict.fromkeys(nothing.fields))
    assert answer.status_code == (200 if route == "restore" else 201), answer.json()
    assert parent.api.get(f"/workspace/{parent.id}").json()["workspace"]["status"] == "running"


def test_a_create_gives_nothing_that_is_the_snapshots(parent: Parent) -> None:
    parent.keep(name="kept")
    for field, more in (
        ("image", {"image": "localhost/tiny:1"}),
        ("preset", {"preset": "ubuntu"}),
        ("memory_mb", {"config": {"memory_mb": 1024}}),
        ("cpus", {"config": {"cpus": 2}}),
        ("disk_size_mb", {"config": {"disk_size_mb": 256}}),
        ("disk_size_mb", {"config": {"disk_size_mb": 256}, "memory": False}),
    ):
        refused(parent.api.post("/workspace", {"snapshot": "kept", **more}), 400, "validation_error", field)
    refused(parent.api.post("/workspace", {"memory": True}), 400, "validation_error", "memory")
    refused(parent.api.post("/workspace", {"snapshot": "none"}), 404, "not_found")
    assert Workspace.objects.count() == 1


def test_a_stopped_workspace_has_no_memory_to_keep(parent: Parent) -> None:
    bring(parent.api, parent.vmhost, parent.id, Status.STOPPED)
    for route in ("snapshot", "fork"):
        answer = parent.api.post(f"/workspace/{parent.id}/{route}", {"memory": True})
        refused(answer, 400, "validation_error", "memory")


@pytest.mark.parametrize("status", [Status.DESTROYED, Status.LOST])
def test_a_workspace_without_state_is_refused(parent: Parent, status: Status) -> None:
    parent.keep()
    bring(parent.api, parent.vmhost, parent.id, status)
    for route in ("snapshot", "restore", "fork"):
        body = refused(parent.api.post(f"/workspace/{parent.id}/{route}"), 409, "invalid_state")
        assert body["details"]["status"] == status


def test_one_operation_at_a_time(parent: Parent) -> None:
    parent.vmhost.hold_tasks()
    assert parent.api.post(f"/workspace/{parent.id}/snapshot", {"wait_ready": False}).status_code == 202
    for route in ("snapshot", "restore", "fork", "stop", "pause"):
        answer = parent.api.post(f"/workspace/{parent.id}/{route}")
        refused(
            answer, 404 if route == "restore" else 409, "not_found" if route == "restore" else "operation_in_progress"
        )
    assert parent.api.get(f"/workspace/{parent.id}").json()["workspace"]["status"] == "running"
    parent.vmhost.release_tasks()
    parent.vmhost.settle()
    assert Snapshot.objects.get().status == "ready"


def test_a_snapshot_that_is_not_complete_is_not_used(parent: Parent) -> None:
    parent.vmhost.driver.fail_next("snapshot", CapacityExceeded("The host lacks disk space."))
    body = refused(parent.api.post(f"/workspace/{parent.id}/snapshot", {"name": "one"}), 503, "VM_UNAVAILABLE")
    assert body["details"]["resource"] == "disk_size_mb"
    shown = parent.api.get("/snapshots").json()["snapshots"][0]
    assert (shown["status"], shown["error"]["code"], shown["usable"]) == ("failed", "no_room", False)
    refused(parent.api.post("/workspace", {"snapshot": "one"}), 409, "snapshot_not_ready")
    refused(parent.api.post(f"/workspace/{parent.id}/restore", {"snapshot": "one"}), 409, "snapshot_not_ready")
    assert parent.keep(name="one")["status"] == "ready", "the name is free"


def test_a_copy_that_cannot_prove_itself_is_refused(parent: Parent) -> None:
    parent.keep(name="one")
    parent.vmhost.driver.fail_next("load", CopyUnproven("It did not answer."))
    refused(parent.api.post("/workspace", {"snapshot": "one"}), 503, "VM_UNAVAILABLE")
    failed = Workspace.objects.exclude(pk=parent.id).get()
    assert (failed.status, failed.error_code) == ("failed", "copy_unproven")
    assert failed.pk not in parent.vmhost.driver.inventory().ids()
    parent.vmhost.driver.fail_next("load", CopyUnproven("It did not answer."))
    refused(parent.api.post(f"/workspace/{parent.id}/restore"), 503, "VM_UNAVAILABLE")
    assert Workspace.objects.get(pk=parent.id).status == "stopped"


def test_a_failed_copy_is_tried_again_while_its_snapshot_is_there(parent: Parent) -> None:
    made = parent.keep(name="one")
    parent.vmhost.driver.fail_next("load", CopyUnproven("It did not answer."), times=2)
    for _ in range(2):
        parent.api.post("/workspace", {"snapshot": "one"})
    one, two = Workspace.objects.exclude(pk=parent.id).values_list("pk", flat=True)
    assert parent.api.post(f"/workspace/{one}/provisioning/retry").status_code == 202
    parent.vmhost.settle()
    assert parent.state(one) == ("first", "first")
    parent.api.delete(f"/snapshots/{made['id']}")
    refused(parent.api.post(f"/workspace/{two}/provisioning/retry"), 409, "snapshot_not_ready")


def test_the_plan_limits_their_number_and_the_pool_their_size(parent: Parent) -> None:
    Plan.objects.update(max_snapshots=1)
    parent.keep()
    body = refused(parent.api.post(f"/workspace/{parent.id}/snapshot"), 402, "SNAPSHOT_LIMIT_REACHED")
    assert (body["details"]["current"], body["details"]["max"]) == (1, 1)
    Plan.objects.update(max_snapshots=5, pool_disk_size_mb=512 + 513 + 512)
    refused(parent.api.post(f"/workspace/{parent.id}/snapshot"), 402, "POOL_LIMIT_REACHED")
    assert parent.keep(memory=False)["status"] == "ready"


def test_snapshots_of_a_stopped_workspace_do_not_overrun_the_pool(parent: Parent) -> None:
    """Its disk was not measured for a while, so all of it counts until the snapshot is made."""
    assert parent.api.post(f"/workspace/{parent.id}/stop").status_code == 200
    Plan.objects.update(pool_disk_size_mb=512 + 511)
    body = refused(parent.api.post(f"/workspace/{parent.id}/snapshot"), 402, "POOL_LIMIT_REACHED")
    assert (body["details"]["current"], body["details"]["requested"]) == (512, 512)
    Plan.objects.update(pool_disk_size_mb=512 + 512)
    assert parent.keep()["status"] == "ready"


def test_another_namespaces_and_accounts_do_not_exist(
    parent: Parent, stranger: Caller, scoped: Callable[..., Caller]
) -> None:
    made = parent.keep(name="one")
    other = Namespace.objects.create(account=parent.api.account, slug="other", name="other")
    inside = scoped(parent.api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")
    for caller in (stranger, inside):
        assert caller.get("/snapshots").json()["total"] == 0
        for method in ("GET", "PATCH", "DELETE"):
            refused(caller.send(method, f"/snapshots/{made['id']}", {}), 404, "not_found")
        for name in ("one", made["id"]):
            refused(caller.post("/workspace", {"snapshot": name}), 404, "not_found")
    refused(parent.api.post("/workspace", {"snapshot": "one", "namespace": "other"}), 404, "not_found")
    assert Workspace.objects.count() == 1


def test_a_suspended_namespace_reads_and_deletes_only(parent: Parent) -> None:
    made = parent.keep(name="one")
    Namespace.objects.update(status="suspended", suspended_by_hand=True)
    for path in (f"/workspace/{parent.id}/snapshot", f"/workspace/{parent.id}/restore", f"/workspace/{parent.id}/fork"):
        refused(parent.api.post(path), 403, "namespace_suspended")
    refused(parent.api.post("/workspace", {"snapshot": "one"}), 403, "namespace_suspended")
    assert parent.api.get(f"/snapshots/{made['id']}").status_code == 200
    assert parent.api.delete(f"/snapshots/{made['id']}").status_code == 200
