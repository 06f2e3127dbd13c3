"""Outcomes of operations: the workspace's transition and the operation's end are one transaction.

A failed operation leads to the state that its machine is in. If the machine cannot be observed (the host does not
answer, the deadline passed), `assumed_status` is a state that the owner can act on; reconcile corrects it later.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError
from workspaces.audit import record_activity
from workspaces.host import machine_events
from workspaces.host.context import Context
from workspaces.host.guest_renewals import renew_guest
from workspaces.models import Operation, Workspace
from workspaces.models.operation import KEEPS_STATUS, OperationKind, OperationState
from workspaces.operations import queue
from workspaces.rows import lock_and_read, update_if
from workspaces.states import TRANSITIONAL, Provisioning, Status
from workspaces.transitions import TransitionLost, transition

STATUS_OF = {
    MachineState.RUNNING: Status.RUNNING,
    MachineState.PAUSED: Status.PAUSED,
    MachineState.ASLEEP: Status.SLEEPING,
    MachineState.OFF: Status.STOPPED,
    MachineState.ABSENT: Status.STOPPED,
}
# Columns that may change while an operation is in flight, and from which the times of its outcome are computed.
LIFECYCLE_COLUMNS = [
    "ttl_seconds", "ttl_action", "ttl_expires_at", "suspend_after", "stop_after", "idle_due_at", "memory_expires_at",
]  # fmt: skip
TTL_ACTOR = "ttl"
# A failed operation of the TTL is retried, but not at every sweep.
TTL_RETRY_AFTER = timedelta(seconds=60)
UNOBSERVED_STATUS = {
    OperationKind.PAUSE: Status.RUNNING,
    OperationKind.RESUME: Status.PAUSED,
    OperationKind.SLEEP: Status.RUNNING,
    OperationKind.WAKE: Status.SLEEPING,
}


# A machine that is off after one of these ended by itself: `remove_on_exit` and the restart policy apply.
KEEPS_MACHINE = frozenset({OperationKind.PAUSE, OperationKind.RESUME, OperationKind.SLEEP})


def assumed_status(operation: Operation) -> Status:
    """Return the status after a failed operation whose machine cannot be observed. An operation that had not begun
    changed nothing.
    """
    before = operation.params.get("from")
    if before == Status.RUNNING and operation.kind == OperationKind.MOVE and operation.attempt:
        return Status.SLEEPING if operation.params["memory"] else Status.STOPPED
    unchanged = operation.kind in KEEPS_STATUS | {OperationKind.STOP, OperationKind.MOVE}
    if before and (unchanged or operation.attempt == 0):
        return Status(before)
    return UNOBSERVED_STATUS.get(OperationKind(operation.kind), Status.STOPPED)


def running_fields(row: Workspace, now: datetime | None = None) -> dict[str, Any]:
    """Return the columns of a workspace that has started: ready, without an error, TTL and idle time from `now`."""
    now = now or timezone.now()
    return {
        "ready": True,
        "error_code": "",
        "error_message": "",
        "user_requested_stop": False,
        "ttl_expires_at": now + timedelta(seconds=row.ttl_seconds) if row.ttl_seconds else None,
        "ttl_length": row.ttl_seconds,
        "idle_due_at": now + timedelta(seconds=row.suspend_after) if row.suspend_after else None,
        "memory_expires_at": None,
        "restart_due_at": None,
    }


def lock_for_outcome(row: Workspace) -> None:
    """Lock the row and read what the owner may have changed since the operation began."""
    lock_and_read(row, LIFECYCLE_COLUMNS)


def rest_status(row: Workspace, status: Status) -> Status:
    """Return `status`, but `failed` if the creation never succeeded: such a row has no machine to start."""
    if status is Status.STOPPED and row.provisioning_state != Provisioning.READY:
        return Status.FAILED
    return status


def rest_fields(row: Workspace, status: Status) -> dict[str, Any]:
    """Return the columns of a workspace that comes to rest in `status` after a failure or a correction.

    `row` must be as it is now: times that the status needs are kept, or set from now if an earlier status had cleared
    them.
    """
    not_stopped = {"user_requested_stop": False}
    if status is Status.RUNNING:
        times = running_fields(row)
        cleared = {name: times[name] for name in ("ttl_expires_at", "idle_due_at") if getattr(row, name) is None}
        if "ttl_expires_at" in cleared:
            cleared["ttl_length"] = times["ttl_length"]
        return {"ready": True, **not_stopped, **cleared}
    if status is Status.SLEEPING:
        return {"memory_expires_at": row.memory_expires_at or machine_events.memory_expiry(row), **not_stopped}
    return not_stopped if status is Status.PAUSED else {"started_at": None}


def restore_sizes(row: Workspace, params: dict[str, Any]) -> None:
    """Restore sizes that were not applied, except those that were saved again since the operation began."""
    for name, value in params["before"].items():
        update_if(row, Q(**{name: params["wanted"][name]}), **{name: value})


def is_ttl_over(row: Workspace) -> bool:
    """Return whether the TTL of a row is over. Read the row just before: its TTL may be renewed or removed."""
    return row.ttl_expires_at is not None and row.ttl_expires_at <= timezone.now()


def succeed_with_status(context: Context, status: Status, event: str, message: str, **fields: Any) -> None:
    """End the operation with the workspace in `status`. Raise TransitionLost, ClaimLost."""
    held = frozenset({Status(context.workspace.status)}) & TRANSITIONAL
    with transaction.atomic():
        transition(context.workspace, status, leaving=held, **{"error_code": "", "error_message": "", **fields})
        queue.finish_operation(context.operation, OperationState.SUCCEEDED)
        record_activity(context.workspace, event, message, actor=context.operation.actor)


def succeed_running(context: Context, event: str, message: str, **fields: Any) -> None:
    """Do what `succeed_with_status` does, with `running`. If the machine ended in between, that is settled
    afterwards.
    """
    with transaction.atomic():
        lock_for_outcome(context.workspace)
        succeed_with_status(context, Status.RUNNING, event, message, **{**running_fields(context.workspace), **fields})
    after_start(context)


def after_start(context: Context) -> None:
    """Apply the changes that were postponed until the workspace runs: the end of its machine, SSH, workloads."""
    machine_events.settle_machine_end(context.operation, context.driver)
    renew_guest(context.workspace)


def fail_as_observed(context: Context, code: str, message: str, **fields: Any) -> None:
    """End a failed operation; the workspace takes the status of its machine, and the error."""
    status = observed_status(context)
    if status is Status.STOPPED and context.operation.kind in KEEPS_MACHINE:
        fail_with_status(context, UNOBSERVED_STATUS[OperationKind(context.operation.kind)], code, message, **fields)
        machine_events.settle_machine_end(context.operation, context.driver)
    else:
        fail_with_status(context, status, code, message, **fields)


def fail_with_status(context: Context, status: Status, code: str, message: str, **fields: Any) -> None:
    """End a failed operation with the workspace in `status`, unless a delete has changed it already."""
    row = context.workspace
    held = frozenset({Status(row.status)}) & TRANSITIONAL
    status = rest_status(row, status)
    with transaction.atomic():
        lock_for_outcome(row)
        fields = {**rest_fields(row, status), "error_code": code, "error_message": message, **fields}
        if context.operation.actor == TTL_ACTOR and is_ttl_over(row):
            fields["ttl_expires_at"] = timezone.now() + TTL_RETRY_AFTER
        with suppress(TransitionLost):
            transition(row, status, leaving=held, **fields)
        queue.finish_operation(context.operation, OperationState.FAILED, code=code, message=message)
        record_activity(row, f"{context.operation.kind}_failed", message)


def observed_status(context: Context) -> Status:
    """Return the status of the machine now, or the assumed one if the host does not answer."""
    try:
        return machine_status(context.driver.state(context.workspace.pk), context.operation)
    except BackendError:
        return assumed_status(context.operation)


def machine_status(state: MachineState, operation: Operation | None) -> Status:
    """Return the status of a workspace whose machine is in `state` after `operation`, which did not succeed.

    A paused machine whose owner did not ask for a pause waits for room on the host's disk
    (`workspaces.host.disk_guard`), or was loaded and did not go on. The workspace is `running` then, so that reconcile
    resumes the machine.
    """
    if state is MachineState.PAUSED and operation is not None and operation.kind != OperationKind.PAUSE:
        return Status.PAUSED if operation.params.get("from", Status.PAUSED) == Status.PAUSED else Status.RUNNING
    return STATUS_OF[state]


def destroy_machine(context: Context) -> None:
    """End the machine. If that fails, the row is stopped or deleting, and reconcile ends the machine."""
    try:
        context.driver.destroy(context.workspace.pk)
    except BackendError as exc:
        record_activity(context.workspace, "cleanup_postponed", exc.message)


def fail_stopped(context: Context, code: str, message: str) -> None:
    """End the machine and the operation; the disk is unchanged, and the owner may start it again."""
    destroy_machine(context)
    fail_with_status(context, Status.STOPPED, code, message)
