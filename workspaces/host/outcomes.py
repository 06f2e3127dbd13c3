"""How operations end: the workspace's move and the operation's end are one transaction.

A failed operation leads to what its machine is then. Where nobody can ask the machine (the host is silent, the deadline
passed), `UNSEEN` names the state that its owner can act on; reconcile corrects it by what the host says later.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from vmbackend.driver import MachineState, StopReason
from vmbackend.errors import BackendError
from workspaces.audit import record
from workspaces.host import machine_events
from workspaces.host.context import Context
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind, OperationState
from workspaces.operations import queue
from workspaces.rows import lock_row, update_if
from workspaces.ssh.services import renew_access
from workspaces.states import TRANSITIONAL, Provisioning, Status
from workspaces.transitions import TransitionLost, transition

STATUS_OF = {
    MachineState.RUNNING: Status.RUNNING,
    MachineState.PAUSED: Status.PAUSED,
    MachineState.ASLEEP: Status.SLEEPING,
    MachineState.OFF: Status.STOPPED,
    MachineState.ABSENT: Status.STOPPED,
}
# Lifecycle columns that change while an operation goes on, and decide about the clocks of its end.
LIFECYCLE_COLUMNS = [
    "ttl_seconds", "ttl_action", "ttl_expires_at", "suspend_after", "stop_after", "idle_due_at", "memory_expires_at",
]  # fmt: skip
TTL_ACTOR = "ttl"
# What the TTL asked for and what failed is tried again, and not at every sweep.
TTL_AGAIN_AFTER = timedelta(seconds=60)
UNOBSERVED_STATUS = {
    OperationKind.PAUSE: Status.RUNNING,
    OperationKind.RESUME: Status.PAUSED,
    OperationKind.SLEEP: Status.RUNNING,
    OperationKind.WAKE: Status.SLEEPING,
}


# A machine that is off after one of these ended by itself: what its owner wants of such an end applies.
KEEPS_MACHINE = frozenset({OperationKind.PAUSE, OperationKind.RESUME, OperationKind.SLEEP})


def assumed_status(operation: Operation) -> Status:
    """What a workspace is taken for after an operation on it failed and nobody could look.

    One that nobody began has changed nothing.
    """
    before = operation.params.get("from")
    if before and (operation.kind == OperationKind.STOP or operation.attempt == 0):
        return Status(before)
    return UNOBSERVED_STATUS.get(OperationKind(operation.kind), Status.STOPPED)


def running_fields(row: Workspace, now: datetime | None = None) -> dict[str, Any]:
    """The columns of a workspace that came to run: ready, without an error, its clocks set anew."""
    now = now or timezone.now()
    return {
        "ready": True,
        "error_code": "",
        "error_message": "",
        "user_requested_stop": False,
        "ttl_expires_at": now + timedelta(seconds=row.ttl_seconds) if row.ttl_seconds else None,
        "idle_due_at": now + timedelta(seconds=row.suspend_after) if row.suspend_after else None,
        "memory_expires_at": None,
        "restart_due_at": None,
    }


def lock_for_outcome(row: Workspace) -> None:
    """Lock the row and read what the owner may have changed since the operation began."""
    lock_row(row)
    row.refresh_from_db(fields=LIFECYCLE_COLUMNS)


def rest_status(row: Workspace, status: Status) -> Status:
    """`status`, but `failed` where the creation never ended well: such a row has no machine to start."""
    if status is Status.STOPPED and row.provisioning_state != Provisioning.READY:
        return Status.FAILED
    return status


def rest_fields(row: Workspace, status: Status) -> dict[str, Any]:
    """The columns of a workspace that rests in `status` after something failed or was found out.

    `row` as it is now: the clocks that the state needs run on, and one that an earlier state had stopped begins anew.
    """
    not_stopped = {"user_requested_stop": False}
    if status is Status.RUNNING:
        clocks = running_fields(row)
        stopped = {name: clocks[name] for name in ("ttl_expires_at", "idle_due_at") if getattr(row, name) is None}
        return {"ready": True, **not_stopped, **stopped}
    if status is Status.SLEEPING:
        return {"memory_expires_at": row.memory_expires_at or machine_events.memory_kept_until(row), **not_stopped}
    return not_stopped if status is Status.PAUSED else {"started_at": None}


def restore_sizes(row: Workspace, params: dict[str, Any]) -> None:
    """Take back sizes that did not come to be: they are what they were, but those that others saved meanwhile."""
    for name, value in params["before"].items():
        update_if(row, Q(**{name: params["wanted"][name]}), **{name: value})


def is_ttl_over(row: Workspace) -> bool:
    """Of a row read anew: whether its TTL is still over, and was neither renewed nor taken away meanwhile."""
    return row.ttl_expires_at is not None and row.ttl_expires_at <= timezone.now()


def succeed(context: Context, status: Status, event: str, sentence: str, **fields: Any) -> None:
    """The workspace comes to `status` from the state its operation holds it in."""
    held = frozenset({Status(context.workspace.status)}) & TRANSITIONAL
    with transaction.atomic():
        transition(context.workspace, status, leaving=held, **{"error_code": "", "error_message": "", **fields})
        queue.finish(context.operation, OperationState.SUCCEEDED)
        record(context.workspace, event, sentence, actor=context.operation.actor)


def succeed_running(context: Context, event: str, sentence: str, **fields: Any) -> None:
    """`succeed` with `running`; a machine that ended meanwhile is told of after it."""
    with transaction.atomic():
        lock_for_outcome(context.workspace)
        succeed(context, Status.RUNNING, event, sentence, **{**running_fields(context.workspace), **fields})
    after_start(context)


def after_start(context: Context) -> None:
    """What changed while the workspace came to run and waited for that: its end, and who may come in by SSH."""
    machine_events.settle_machine_end(context.operation, context.driver)
    renew_access(context.workspace)


def fail_as_observed(context: Context, code: str, sentence: str, **fields: Any) -> None:
    """End a failed operation; the workspace is what its machine is, and says why."""
    found = observed_status(context)
    if found is Status.STOPPED and context.operation.kind in KEEPS_MACHINE:
        fail_with_status(context, UNOBSERVED_STATUS[OperationKind(context.operation.kind)], code, sentence, **fields)
        machine_events.settle_machine_end(context.operation, context.driver, unseen=StopReason.CRASHED)
    else:
        fail_with_status(context, found, code, sentence, **fields)


def fail_with_status(context: Context, status: Status, code: str, sentence: str, **fields: Any) -> None:
    """End a failed operation with the workspace in `status`. A delete that came meanwhile decides about the row."""
    row = context.workspace
    held = frozenset({Status(row.status)}) & TRANSITIONAL
    status = rest_status(row, status)
    with transaction.atomic():
        lock_for_outcome(row)
        fields = {**rest_fields(row, status), "error_code": code, "error_message": sentence, **fields}
        if context.operation.actor == TTL_ACTOR and is_ttl_over(row):
            fields["ttl_expires_at"] = timezone.now() + TTL_AGAIN_AFTER
        with suppress(TransitionLost):
            transition(row, status, leaving=held, **fields)
        queue.finish(context.operation, OperationState.FAILED, code=code, sentence=sentence)
        record(row, f"{context.operation.kind}_failed", sentence)


def observed_status(context: Context) -> Status:
    """What the machine is now, or what it is taken for where the host does not answer."""
    try:
        return STATUS_OF[context.driver.state(context.workspace.pk)]
    except BackendError:
        return assumed_status(context.operation)


def destroy_machine(context: Context) -> None:
    """End the machine; where that fails, the row says stopped or deleting and the reconcile loop ends it."""
    try:
        context.driver.destroy(context.workspace.pk)
    except BackendError as exc:
        record(context.workspace, "cleanup_postponed", exc.message)


def fail_stopped(context: Context, code: str, sentence: str) -> None:
    """The machine is off and its disk as it was; the owner may start it again."""
    destroy_machine(context)
    fail_with_status(context, Status.STOPPED, code, sentence)
