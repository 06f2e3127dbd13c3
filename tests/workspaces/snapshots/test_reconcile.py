"""Events of snapshots, their time to live, and corrections by reconcile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.workspaces.snapshots.conftest import Parent
from vmbackend.copies import Difference
from vmbackend.errors import CapacityExceeded
from webhooks.models import Event, Subscription
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host.sweep import sweep_due
from workspaces.models import Operation, Snapshot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def announced(parent: Parent) -> Any:
    """The events of now, as (name, data)."""
    answer = parent.api.post("/webhooks", {"url": "https://example.org/hook", "events": ["*"]})
    assert answer.status_code in (200, 201), answer.json()
    assert Subscription.objects.count() == 1
    return lambda: list(Event.objects.order_by("created_at", "pk").values_list("type", "data"))


def test_what_happens_to_snapshots_is_announced(parent: Parent, announced: Any) -> None:
    made = parent.keep(name="one")
    named = {"snapshot_id": made["id"], "workspace_id": parent.id, "name": "one"}
    assert announced() == [("snapshot.created", {**named, "memory": True, "size_bytes": made["size_bytes"]})]
    parent.vmhost.driver.fail_next("snapshot", CapacityExceeded("It is full."))
    parent.api.post(f"/workspace/{parent.id}/snapshot", {"name": "two"})
    name, data = announced()[-1]
    assert (name, data["code"], data["message"]) == ("snapshot.failed", "no_room", "It is full.")
    parent.api.post(f"/workspace/{parent.id}/restore")
    restored = {"workspace_id": parent.id, "snapshot_id": made["id"], "memory": True}
    assert announced()[-1] == ("workspace.restored", restored)
    parent.api.delete(f"/snapshots/{made['id']}")
    assert announced()[-1] == ("snapshot.deleted", {"snapshot_id": made["id"], "reason": "request"})


def test_forks_are_announced_once_when_all_are_made(parent: Parent, announced: Any) -> None:
    forks = parent.api.post(f"/workspace/{parent.id}/fork", {"count": 2}).json()["forks"]
    parent.vmhost.settle()
    [(name, data)] = announced()
    assert name == "workspace.forked"
    assert (data["workspace_id"], data["failed"]) == (parent.id, 0)
    assert data["forks"] == [entry["workspace"]["id"] for entry in forks]


def test_a_snapshot_goes_when_its_time_is_over(parent: Parent, announced: Any) -> None:
    made, kept = parent.keep(name="one", ttl=60), parent.keep(name="two")
    assert sweep_due() == 0
    Snapshot.objects.filter(pk=made["id"]).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert sweep_due() == 1
    assert parent.stored() == {kept["id"]}
    assert announced()[-1] == ("snapshot.deleted", {"snapshot_id": made["id"], "reason": "expired"})


def test_one_without_files_has_failed(parent: Parent) -> None:
    made = parent.keep(name="one")
    parent.vmhost.driver.remove_snapshot(made["id"])
    assert reconcile_rows_and_machines(parent.vmhost.runtime) == 1
    row = Snapshot.objects.get()
    assert (row.status, row.error_code, row.pool_mb) == ("failed", "snapshot_lost", 0)


def test_files_without_a_row_are_removed_after_the_grace_time(parent: Parent) -> None:
    kept = parent.keep(name="one")
    parent.vmhost.driver.snapshot(parent.id, "snap_orphan")
    parent.vmhost.runtime.snapshot_since = {"snap_orphan": -1e9}
    reconcile_rows_and_machines(parent.vmhost.runtime)
    assert parent.stored() == {kept["id"]}


def test_a_lost_wakeup_of_a_removal_is_made_good(parent: Parent) -> None:
    made = parent.keep(name="one")
    parent.vmhost.hold_tasks()
    parent.api.delete(f"/snapshots/{made['id']}")
    parent.vmhost.held_tasks = []
    parent.vmhost.release_tasks()
    assert parent.stored() == {made["id"]}
    reconcile_rows_and_machines(parent.vmhost.runtime)
    assert parent.stored() == set()
    assert not Snapshot.objects.exists()


def test_a_host_that_has_changed_says_what_differs(parent: Parent) -> None:
    made = parent.keep(name="one")
    parent.vmhost.driver.set_differences(made["id"], Difference("QEMU", "7.2", "10.0"))
    parent.vmhost.restart()
    shown = parent.api.get(f"/snapshots/{made['id']}").json()["snapshot"]
    assert (shown["usable"], shown["unusable_reason"]) == (False, "The host has changed. QEMU: 7.2 then, 10.0 now.")


def test_one_that_no_operation_makes_any_more_has_failed(parent: Parent) -> None:
    parent.vmhost.hold_tasks()
    made = parent.keep(status=202, wait_ready=False, name="one")
    reconcile_rows_and_machines(parent.vmhost.runtime)
    assert Snapshot.objects.get().status == "creating", "its operation is queued"
    Operation.objects.filter(kind="snapshot").delete()
    reconcile_rows_and_machines(parent.vmhost.runtime)
    shown = parent.api.get(f"/snapshots/{made['id']}").json()["snapshot"]
    assert (shown["status"], shown["error"]["code"]) == ("failed", "snapshot_lost")
    assert Snapshot.objects.get().pool_mb == 0
    parent.vmhost.release_tasks()
    assert parent.keep(name="one")["status"] == "ready"
