"""Making, changing and deleting snapshots, and restoring one: guarded transitions that queue an operation."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.actors import Actor
from accounts.services import account_lock, idempotency_find, idempotency_record
from common.errors import Conflict, NotFound, ValidationError
from common.idempotency import IdempotencyConflict
from credits.refusals import refusals_announced
from vmbackend.copies import AfterSnapshot
from workspaces import quota
from workspaces.audit import record_activity, record_activity_of
from workspaces.crud.source import Source, use_snapshot
from workspaces.host_away import require_reachable
from workspaces.models import Operation, Snapshot, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.snapshot import COUNTED, SHOWN
from workspaces.operations import queue
from workspaces.power import (
    begin_operation,
    require_growth_allowed,
    require_host,
    require_no_operation,
    require_open_namespace,
    require_start_allowed,
    sizes_of,
    use_namespace,
)
from workspaces.rows import lock_and_read, lock_current
from workspaces.snapshot_rows import MIB, snapshot_delete, snapshot_insert, snapshot_update, snapshot_use
from workspaces.snapshot_selectors import NOT_FOUND_MESSAGE, find_snapshot, get_snapshot, newest_ready
from workspaces.states import HAS_STATE, Status
from workspaces.transitions import require_status
from workspaces.usage.latest_samples import SampledMachine, latest_samples

logger = logging.getLogger(__name__)

NAME_TAKEN = "Another snapshot of this account has this name."
# A name made from the workspace's leaves room for the time and a number.
NAME_PART = 96


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A validated request. `memory` None: as the state allows; `ttl` in seconds, None: it is kept for ever."""

    name: str | None = None
    after: AfterSnapshot = AfterSnapshot.RESUME
    memory: bool | None = None
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class MadeSnapshot:
    """Result of a request. `replayed`: an earlier one with the same idempotency key made the snapshot."""

    snapshot: Snapshot
    operation: Operation | None
    replayed: bool = False


@refusals_announced()
@transaction.atomic
def snapshot_create(
    *, actor: Actor, workspace: Workspace, new: NewSnapshot, key: str | None = None, fingerprint: str = ""
) -> MadeSnapshot:
    """Make the row and queue the operation that keeps the workspace's state. Its status does not change, unless it is
    to be paused or stopped.

    Raise IdempotencyConflict, NamespaceSuspended, QuotaExceeded, OperationInProgress, InvalidState, VMUnavailable,
    ValidationError (memory of a stopped one), Conflict (the name is taken), SnapshotLimitReached, PoolLimitReached.
    Nothing has changed then.
    """
    account = account_lock(workspace.account)
    replayed = _replay(actor, key, fingerprint)
    if replayed is not None:
        return replayed
    memory = require_state_kept(workspace, new.memory, "be kept in a snapshot")
    name = _free_name(workspace, new.name)
    pool_mb = _expected_mb(workspace, memory)
    quota.require_snapshot_allowed(account, pool_mb)
    operation = _begin(workspace, actor.label, new.after)
    expires = timezone.now() + timedelta(seconds=new.ttl) if new.ttl else None
    columns = {"name": name, "memory": memory, "pool_mb": pool_mb, "expires_at": expires}
    snapshot = snapshot_insert(workspace, operation, **columns)
    if key is not None:
        idempotency_record(account=account, key=key, fingerprint=fingerprint, resource_id=snapshot.pk)
    return MadeSnapshot(snapshot, operation)


def require_state_kept(workspace: Workspace, memory: bool | None, doing: str) -> bool:
    """Check that the workspace's state can be kept now, under the account's lock. Return whether memory is kept.

    Reads the row and locks it: no transition follows that would meet a delete's, which must see the operation and the
    snapshot, or be seen. Raise NotFound (deleted), and what `snapshot_create` raises about namespace and state.
    """
    lock_current(workspace)
    require_reachable(workspace)
    require_open_namespace(workspace)
    require_no_operation(workspace)
    require_status(workspace, HAS_STATE, doing)
    require_host(workspace)
    has_memory = workspace.status != Status.STOPPED
    if memory and not has_memory:
        raise ValidationError(details={"memory": ["memory: a stopped workspace has none."]})
    use_namespace(workspace)
    return has_memory if memory is None else memory


def _replay(actor: Actor, key: str | None, fingerprint: str) -> MadeSnapshot | None:
    used = idempotency_find(account=actor.account, key=key) if key else None
    if used is None:
        return None
    if used.fingerprint != fingerprint:
        raise IdempotencyConflict
    if not Snapshot.objects.filter(SHOWN, pk=used.resource_id).exists():
        raise IdempotencyConflict("The snapshot that this idempotency key made has been deleted.")
    snapshot = get_snapshot(actor, used.resource_id)
    return MadeSnapshot(snapshot, Operation.objects.filter(pk=snapshot.operation_id).first(), replayed=True)


def _free_name(workspace: Workspace, wanted: str | None) -> str:
    """Return the name, or one that is made from the workspace's and the time. Raise Conflict."""
    names = Snapshot.objects.filter(COUNTED, account_id=workspace.account_id)
    if wanted is not None:
        if names.filter(name=wanted).exists():
            raise Conflict(NAME_TAKEN, details={"name": wanted})
        return wanted
    base = f"{workspace.name[:NAME_PART]} {timezone.now():%Y-%m-%d %H:%M:%S}"
    taken = set(names.filter(name__startswith=base).values_list("name", flat=True))
    numbered = (f"{base} ({number})" for number in range(2, len(taken) + 3))
    return next(name for name in (base, *numbered) if name not in taken)


def _expected_mb(workspace: Workspace, memory: bool) -> int:
    """Return what a snapshot will take of the disk pool: memory, and what of the disk was used when last measured.

    The whole disk counts if that is not known, as of a stopped workspace, and one MiB at least: what is asked as 0
    passes every limit.
    """
    try:
        sample = latest_samples([SampledMachine(workspace.host_id, workspace.pk)]).get(workspace.pk)
    except redis.RedisError as exc:
        logger.warning("the disk usage of %s cannot be read: %s", workspace.pk, exc)
        sample = None
    used = sample.disk_used_bytes if sample else None
    disk_mb = workspace.applied_disk_size_mb if used is None else -(-used // MIB)
    return max(1, (workspace.applied_memory_mb if memory else 0) + disk_mb)


def _begin(workspace: Workspace, actor: str, after: AfterSnapshot) -> Operation:
    """Queue the operation; with the transition to the state that the workspace is to have after it, if it differs."""
    params: dict[str, Any] = {"after": after.value}
    status = Status(workspace.status)
    if after is AfterSnapshot.PAUSED and status is Status.RUNNING:
        return begin_operation(workspace, Status.PAUSING, OperationKind.SNAPSHOT, actor, params)
    if after is AfterSnapshot.STOP and status is not Status.STOPPED:
        fields: dict[str, Any] = {"user_requested_stop": True}
        if status is Status.SLEEPING:
            fields["started_at"] = None
        return begin_operation(workspace, Status.STOPPING, OperationKind.SNAPSHOT, actor, params, **fields)
    params["from"] = status
    return queue.enqueue_operation(workspace, OperationKind.SNAPSHOT, actor=actor, params=params)


@transaction.atomic
def snapshot_change(*, snapshot: Snapshot, changes: dict[str, Any]) -> Snapshot:
    """Write name and expiry. Raise Conflict (the name is taken), NotFound (deleted concurrently)."""
    account_lock(snapshot.account)
    try:
        with transaction.atomic():
            changed = not changes or snapshot_update(snapshot, **changes)
    except IntegrityError:
        raise Conflict(NAME_TAKEN, details={"name": changes.get("name")}) from None
    if not changed:
        raise NotFound(NOT_FOUND_MESSAGE)
    return snapshot


@transaction.atomic
def snapshot_remove(*, snapshot: Snapshot, actor: str) -> None:
    """Delete a snapshot in any state; workspaces that were made from it live on. Raise NotFound (deleted already)."""
    if not snapshot_delete(snapshot, "request"):
        raise NotFound(NOT_FOUND_MESSAGE)
    if snapshot.workspace_id:
        text = f"{snapshot.name} ({snapshot.pk})."
        record_activity_of(snapshot.account_id, snapshot.workspace_id, "snapshot_deleted", text, actor=actor)


@refusals_announced()
@transaction.atomic
def workspace_restore(
    *, actor: Actor, workspace: Workspace, identifier: str | None = None, memory: bool | None = None
) -> Operation:
    """Queue the return to a snapshot of this workspace, by default the newest one that is complete. What was since is
    lost.

    Raise NotFound (no such snapshot of this workspace), NamespaceSuspended, QuotaExceeded, OperationInProgress,
    InvalidState, the errors of `crud.source.use_snapshot`, the limit errors of a start, VMUnavailable. Nothing has
    changed then.
    """
    account_lock(workspace.account)
    lock_and_read(workspace)
    require_reachable(workspace)
    require_open_namespace(workspace)
    snapshot = newest_ready(workspace) if identifier is None else find_snapshot(actor, identifier)
    if snapshot.workspace_id != workspace.pk:
        raise NotFound(NOT_FOUND_MESSAGE)
    require_no_operation(workspace)
    require_status(workspace, HAS_STATE, "be restored")
    source = use_snapshot(snapshot, memory)
    sizes = _restored_sizes(workspace, source)
    before = {"before": sizes_of(workspace, sizes), "wanted": sizes}
    params = {**source.params, **before, "was_running": workspace.status == Status.RUNNING}
    text = f"To {snapshot.name} ({snapshot.pk})."
    record_activity(workspace, "restore_requested", text, actor=actor.label)
    fields = {**sizes, "restart_due_at": None}
    operation = begin_operation(workspace, Status.RESTORING, OperationKind.RESTORE, actor.label, params, **fields)
    if not snapshot_use(snapshot):
        raise NotFound(NOT_FOUND_MESSAGE)
    return operation


def _restored_sizes(workspace: Workspace, source: Source) -> dict[str, int]:
    """Return the columns of sizes. With memory they are the snapshot's; a disk never shrinks. Raise limit errors."""
    own, kept = quota.amount_of(workspace), source.amount
    disk = max(own.disk_size_mb, kept.disk_size_mb)
    wanted = quota.Amount(kept.cpu_millis, kept.memory_mb, disk) if source.memory else own
    _require_sizes_allowed(workspace, own, wanted)
    if workspace.status in (Status.RUNNING, Status.PAUSED):
        use_namespace(workspace)
        require_growth_allowed(workspace, wanted)
    else:
        require_start_allowed(workspace, wanted)
    return {**(quota.columns_of(wanted) if source.memory else {}), **quota.applied_columns(wanted)}


def _require_sizes_allowed(workspace: Workspace, own: quota.Amount, wanted: quota.Amount) -> None:
    """Check what a change of resources to the same sizes checks; one that needs no more passes. Raise limit errors."""
    plan, more = workspace.account.plan, quota.growth(own, wanted)
    if more != quota.Amount(0, 0, 0, 0):
        quota.require_plan_allows(plan, wanted)
        quota.require_namespace_limits(workspace.namespace, wanted, new=False)
    quota.require_owned_pool(plan, quota.account_usage(workspace.account), more)
