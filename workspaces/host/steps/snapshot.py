"""Snapshot: the machine's state is kept. Params: after (`AfterSnapshot`). A fork keeps it for its copies only."""

from __future__ import annotations

from django.db import transaction

from vmbackend.copies import AfterSnapshot, StoredSnapshot
from vmbackend.errors import SnapshotNotFound
from workspaces.audit import record_activity
from workspaces.host import machine_events
from workspaces.host.context import Context, finish_cancelled
from workspaces.host.outcomes import fail_with_status, lock_for_outcome, observed_status
from workspaces.host.steps.power import stopped_fields
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.power import cancel_restart
from workspaces.snapshot_rows import fail_snapshot_of, notify_removal, snapshot_of, snapshot_ready
from workspaces.states import TRANSITIONAL, Status
from workspaces.transitions import transition


def keep_state(context: Context) -> None:
    """Keep disk and memory. A snapshot that was deleted meanwhile is not made. Raise SnapshotNotFound then."""
    snapshot = snapshot_of(context.operation)
    if snapshot is None:
        raise SnapshotNotFound("The snapshot was deleted before it was made.")
    after = AfterSnapshot(context.operation.params.get("after", AfterSnapshot.RESUME))
    stored = context.driver.snapshot(context.workspace.pk, snapshot.pk, after=after, memory=snapshot.memory)
    context.facts["stored"] = stored


def complete_snapshot(context: Context) -> None:
    """Write that it is complete, and the status that its owner asked for, in one commit."""
    row, stored = context.workspace, context.facts["stored"]
    assert isinstance(stored, StoredSnapshot)  # noqa: S101 set by the step before
    with transaction.atomic():
        lock_for_outcome(row)
        _follow(context)
        snapshot = snapshot_of(context.operation)
        queue.finish_operation(context.operation, OperationState.SUCCEEDED)
        if snapshot is not None and snapshot_ready(snapshot, stored) and snapshot.name:
            record_activity(row, "snapshot_created", f"{snapshot.name} ({snapshot.pk}).", actor=context.operation.actor)
        elif snapshot is None:
            notify_removal(context.operation.queue)
    machine_events.settle_machine_end(context.operation, context.driver)


def _follow(context: Context) -> None:
    """Make the transition to `paused` or `stopped`, if the operation began one."""
    row = context.workspace
    held = frozenset({Status(row.status)})
    if row.status == Status.STOPPING:
        transition(row, Status.STOPPED, leaving=held, **stopped_fields(row, by_user=True))
        record_activity(row, "stopped", "It was stopped with its snapshot.", actor=context.operation.actor)
    elif row.status == Status.PAUSING:
        transition(row, Status.PAUSED, leaving=held, idle_due_at=None)
        record_activity(row, "paused", "It was paused with its snapshot.", actor=context.operation.actor)
    elif context.operation.params.get("after") == AfterSnapshot.STOP:
        cancel_restart(row)  # it was stopped before, and is to stay so


SNAPSHOT_STEPS = (("keep_state", keep_state), ("complete", complete_snapshot))
FORK_STEPS = SNAPSHOT_STEPS


def snapshot_failed(context: Context, code: str, message: str) -> None:
    """Write the failure. The workspace is as it was, if it was to be paused or stopped."""
    row, operation = context.workspace, context.operation
    status = observed_status(context)
    was_up = operation.params.get("from") in machine_events.ENDED
    if status is Status.STOPPED and was_up:  # it ended by itself, which is settled below
        status = Status(operation.params["from"])
    with transaction.atomic():
        if row.status in TRANSITIONAL:
            fail_with_status(context, status, code, message)
        else:
            queue.finish_operation(operation, OperationState.FAILED, code=code, message=message)
            record_activity(row, f"{operation.kind}_failed", message)
        if snapshot_of(operation) is None:  # deleted meanwhile, and its removal waited for this end
            notify_removal(operation.queue)
        fail_snapshot_of(operation, code, message)
    machine_events.settle_machine_end(operation, context.driver)


def snapshot_cancelled(context: Context) -> None:
    """End the operation in favour of a delete, which has decided about the snapshot; what was written is removed."""
    finish_cancelled(context)
    notify_removal(context.operation.queue)
