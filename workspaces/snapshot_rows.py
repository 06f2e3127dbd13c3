"""Writing snapshot rows, in the caller's transaction, with the events and the audit entries of what is written.

Locks are taken in the order of `workspaces.rows`; a snapshot's row comes after its operation's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from common.work.wakeups import task_send
from namespaces.selectors import slugs_of
from vmbackend.copies import Difference, StoredSnapshot
from webhooks.events import NewEvent, publish_events
from workspaces.audit import record_activity_of
from workspaces.models import Operation, Snapshot, Workspace
from workspaces.models.operation import LIVE, OperationKind, OperationState
from workspaces.models.snapshot import LIVING, SnapshotPurpose, SnapshotStatus
from workspaces.operations import queue

MIB = 1 << 20
REMOVE_TASK = "workspaces.tasks.remove_snapshots"
# The columns of a workspace that its snapshot keeps under the same name.
KEPT_COLUMNS = ("image", "image_digest", "preset", "catalog_snapshot", "env", "cmd", "workloads")
NETWORK_COLUMNS = ("allow_internet", "public_access", "ingress_ports", "egress_ports", "egress", "ingress")
EXPIRE_BATCH = 200


def snapshot_insert(workspace: Workspace, operation: Operation, **columns: Any) -> Snapshot:
    """Insert the row of a snapshot that `operation` is to make. Raise IntegrityError (the name is taken)."""
    applied = workspace.applied
    return Snapshot.objects.create(
        account_id=workspace.account_id,
        namespace_id=workspace.namespace_id,
        workspace=workspace,
        host_id=workspace.host_id or "",
        parent=Snapshot.objects.filter(pk=workspace.source_snapshot_id, purpose=SnapshotPurpose.KEPT).first(),
        operation_id=operation.pk,
        cpu_millis=workspace.applied_cpu_millis,
        memory_mb=applied.memory_mb,
        disk_size_mb=applied.disk_size_mb,
        network={name: getattr(workspace, name) for name in NETWORK_COLUMNS},
        **{name: getattr(workspace, name) for name in KEPT_COLUMNS},
        **columns,
    )


def snapshot_of(operation: Operation) -> Snapshot | None:
    """Return the living snapshot that an operation makes, or None."""
    return Snapshot.objects.filter(LIVING, operation_id=operation.pk).first()


def snapshot_ready(snapshot: Snapshot, stored: StoredSnapshot) -> bool:
    """Write that a snapshot is complete. Return False if it is deleted or has failed; its host removes it then."""
    columns: dict[str, Any] = {
        "status": SnapshotStatus.READY,
        "memory": snapshot.memory and stored.memory,
        "size_bytes": stored.size_bytes,
    }
    if snapshot.purpose == SnapshotPurpose.KEPT:  # one for forks is gone in a moment
        columns |= {"pool_mb": -(-stored.size_bytes // MIB), "charged_until": timezone.now()}
    if not _update(Snapshot.objects.filter(LIVING, status=SnapshotStatus.CREATING), snapshot, **columns):
        return False
    transaction.on_commit(lambda: queue.notify_copies(snapshot.pk))
    if snapshot.purpose == SnapshotPurpose.KEPT:
        data = {"memory": snapshot.memory, "size_bytes": snapshot.size_bytes}
        publish_snapshot_event(snapshot, "snapshot.created", {**_named(snapshot), **data})
    return True


def fail_snapshot_of(operation: Operation, code: str, message: str) -> None:
    """Write that the snapshot of an operation failed. No effect for other operations."""
    for snapshot in Snapshot.objects.filter(operation_id=operation.pk, status=SnapshotStatus.CREATING):
        snapshot_fail(snapshot, code, message)


def snapshot_fail(snapshot: Snapshot, code: str, message: str) -> bool:
    """Write that a snapshot failed, or that its files are gone. Return False if it has failed or is deleted already."""
    columns = {
        "status": SnapshotStatus.FAILED,
        "error_code": code,
        "error_message": message,
        "pool_mb": 0,
        "charged_until": None,
    }
    if not _update(Snapshot.objects.filter(LIVING).exclude(status=SnapshotStatus.FAILED), snapshot, **columns):
        return False
    transaction.on_commit(lambda: queue.notify_copies(snapshot.pk))
    if snapshot.purpose == SnapshotPurpose.KEPT:
        data = {**_named(snapshot), "code": code, "message": message}
        publish_snapshot_event(snapshot, "snapshot.failed", data)
    return True


def snapshot_use(snapshot: Snapshot) -> bool:
    """Note that a machine is made from the snapshot, in the transaction that queues it: a deletion waits for its
    commit, and the removal of the files for the operation's end. Call it after the operation is queued.

    Return False if it was deleted concurrently, or has moved to another host: its files may be gone.
    """
    here = Snapshot.objects.filter(LIVING, host_id=snapshot.host_id)
    return _update(here, snapshot, last_used_at=timezone.now())


def snapshot_update(snapshot: Snapshot, **columns: Any) -> bool:
    """Write columns of a living snapshot. Return False if it is deleted."""
    return _update(Snapshot.objects.filter(LIVING), snapshot, **columns)


def write_differences(snapshot: Snapshot, differs: Iterable[Difference]) -> None:
    """Write what keeps the memory of a snapshot from being loaded, as its host says."""
    found = [{"what": each.what, "snapshot": each.snapshot, "host": each.host} for each in differs]
    if found != snapshot.differs:
        snapshot_update(snapshot, differs=found)


def snapshot_delete(snapshot: Snapshot, reason: str) -> bool:
    """Make a snapshot invisible, and let its host remove the files. Return False if it is deleted already."""
    now = timezone.now()
    if not snapshot_update(snapshot, deleted_at=now, expires_at=None, pool_mb=0):
        return False
    if snapshot.purpose == SnapshotPurpose.KEPT:
        publish_snapshot_event(snapshot, "snapshot.deleted", {"snapshot_id": snapshot.pk, "reason": reason})
    notify_removal(snapshot.host.queue)
    return True


def notify_removal(host_queue: str) -> None:
    """Wake a host that has snapshots to remove, on commit. If that is lost, its reconcile removes them."""
    transaction.on_commit(lambda: task_send(REMOVE_TASK, host_queue, []))


@transaction.atomic
def settle_forks(snapshot: Snapshot) -> bool:
    """Delete the snapshot of forks that are all made, or have failed, and publish which. Return False before that."""
    creations = Operation.objects.filter(kind=OperationKind.CREATE, workspace_id__in=snapshot.forks)
    forking = Operation.objects.filter(pk=snapshot.operation_id)
    if (creations | forking).filter(state__in=LIVE).exists() or not snapshot_delete(snapshot, "forked"):
        return False
    succeeded = set(creations.filter(state=OperationState.SUCCEEDED).values_list("workspace_id", flat=True))
    made = [key for key in snapshot.forks if key in succeeded]
    data = {
        "workspace_id": snapshot.workspace_id,
        "snapshot_id": snapshot.pk if snapshot.status == SnapshotStatus.READY else None,
        "forks": made,
        "failed": len(snapshot.forks) - len(made),
    }
    publish_snapshot_event(snapshot, "workspace.forked", data)
    return True


def release_snapshots(workspace: Workspace, *, keep: bool) -> None:
    """Delete the snapshots of a workspace that is being deleted, or keep them; those that are not complete end."""
    for snapshot in Snapshot.objects.filter(LIVING, workspace=workspace).select_related("host"):
        if snapshot.status == SnapshotStatus.CREATING:
            snapshot_fail(snapshot, "cancelled", "The workspace was deleted before the snapshot was complete.")
        if not keep and snapshot.purpose == SnapshotPurpose.KEPT:
            snapshot_delete(snapshot, "workspace_deleted")


def expire_snapshots(now: datetime) -> int:
    """Delete the snapshots whose time to live is over. Return how many."""
    due = Snapshot.objects.filter(LIVING, expires_at__lte=now).select_related("host").order_by("expires_at")
    return sum(_expire(snapshot) for snapshot in due[:EXPIRE_BATCH])


@transaction.atomic
def _expire(snapshot: Snapshot) -> bool:
    unchanged = Snapshot.objects.filter(LIVING, expires_at=snapshot.expires_at)
    if not _update(unchanged, snapshot, expires_at=None):
        return False  # changed since the query
    if snapshot.workspace_id:
        text = f"The time to live of {snapshot.name} is over."
        record_activity_of(snapshot.account_id, snapshot.workspace_id, "snapshot_expired", text, actor="ttl")
    return snapshot_delete(snapshot, "expired")


def snapshots_move(source_id: str, target_id: str) -> int:
    """Move all snapshots of a namespace to another one. Return how many."""
    return Snapshot.objects.filter(namespace_id=source_id).update(namespace_id=target_id)


def is_in_use(snapshot_id: str) -> bool:
    """Return whether an operation that reads the snapshot is in flight."""
    return Operation.objects.filter(state__in=LIVE, params__snapshot=snapshot_id).exists()


def publish_snapshot_event(snapshot: Snapshot, name: str, data: dict[str, Any]) -> None:
    """Publish an event of the snapshot's namespace."""
    slug = slugs_of([snapshot.namespace_id]).get(snapshot.namespace_id, "")
    publish_events([NewEvent(snapshot.account_id, snapshot.namespace_id, slug, name, data)])


def _named(snapshot: Snapshot) -> dict[str, Any]:
    return {"snapshot_id": snapshot.pk, "workspace_id": snapshot.workspace_id, "name": snapshot.name}


def _update(rows: QuerySet[Snapshot], snapshot: Snapshot, **columns: Any) -> bool:
    if not rows.filter(pk=snapshot.pk).update(**columns):
        return False
    for name, value in columns.items():
        setattr(snapshot, name, value)
    return True
