"""Operations whose claim owner died, and operations past their deadline."""

from __future__ import annotations

import logging

from django.db import OperationalError, transaction

from workspaces.audit import record_activity
from workspaces.host import restarts
from workspaces.host.context import recorded_facts
from workspaces.host.engine import MAX_ATTEMPTS
from workspaces.host.outcomes import assumed_status, rest_fields, rest_status, restore_sizes
from workspaces.host.runtime import HostRuntime
from workspaces.host.steps.create import mark_failed
from workspaces.models import Operation, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import KEEPS_STATUS, OperationKind, OperationState
from workspaces.moves.rows import move_end
from workspaces.operations import queue
from workspaces.rows import find_and_lock
from workspaces.snapshot_rows import fail_snapshot_of
from workspaces.states import TRANSITIONAL, Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

BATCH = 100


def settle_orphaned_operations(runtime: HostRuntime) -> int:
    """Settle running operations of this host that this process does not own: their claim owner is dead.

    Only one vmhost runs on a host at a time (the hypervisor's lock ensures it), so this need not wait.
    """
    orphans = Operation.objects.filter(queue=runtime.queue_name, state=OperationState.RUNNING).exclude(
        claim__in=runtime.claims
    )
    settled = 0
    for operation in list(orphans[:BATCH]):
        # Claimed by this process between the query and now?
        if operation.claim not in runtime.claims:
            settled += _settle(operation, "the process that ran it ended")
    return settled


def _settle(operation: Operation, because: str) -> bool:
    if operation.attempt < MAX_ATTEMPTS or operation.kind == OperationKind.DELETE:
        with transaction.atomic():
            return queue.requeue_operation(operation, because=because)
    return fail_abandoned(
        operation, "internal_error", f"The operation was tried {operation.attempt} times, and {because} each time."
    )


def expire_operations() -> int:
    """Fail operations past their deadline; the workspace takes a status that its owner can act on."""
    return sum(_expire(operation) for operation in list(queue.overdue_operations()[:BATCH]))


def _expire(operation: Operation) -> bool:
    """Fail one operation. What its host wrote into it keeps no other from its end."""
    try:
        return fail_abandoned(operation, "deadline_exceeded", "The operation did not finish in time.")
    except OperationalError:
        raise
    except Exception:
        logger.exception("%s %s cannot be ended", operation.kind, operation.pk)
        return False


def fail_abandoned(operation: Operation, code: str, message: str) -> bool:
    """Fail an operation in place of its claim owner. Return False if it has changed since it was read."""
    with transaction.atomic():
        workspace = find_and_lock(operation.workspace_id)
        owned = queue.take_over_operation(operation)
        if owned is None or workspace is None:
            return False
        move_end(owned, MoveState.FAILED, code, message)
        try:
            _fail_workspace(workspace, owned, code, message)
        except TransitionLost:
            logger.info("%s has changed its status already", workspace.pk)
        queue.finish_operation(owned, OperationState.FAILED, code=code, message=message)
        fail_snapshot_of(owned, code, message)
        record_activity(workspace, f"{owned.kind}_failed", message)
    return True


def _fail_workspace(workspace: Workspace, operation: Operation, code: str, message: str) -> None:
    """Write the status after a failure whose machine was not observed. Reconcile corrects it later."""
    if operation.kind == OperationKind.CREATE:
        mark_failed(workspace, code, message)
    elif operation.kind in KEEPS_STATUS | {OperationKind.MOVE} and workspace.status not in TRANSITIONAL:
        return
    elif operation.kind != OperationKind.DELETE:  # stays `deleting`; the next reconcile queues another delete
        if _applied_no_sizes(operation):
            restore_sizes(workspace, operation.params)
        to = rest_status(workspace, assumed_status(operation))
        fields = {
            **rest_fields(workspace, to),
            **_error(code, message),
            **restarts.replan_restart(workspace, operation),
        }
        transition(workspace, to, leaving=TRANSITIONAL - {Status.DELETING}, **fields)


def _applied_no_sizes(operation: Operation) -> bool:
    if operation.kind == OperationKind.RESIZE:
        return "applied" not in recorded_facts(operation)
    return operation.attempt == 0 and "before" in operation.params


def _error(code: str, message: str) -> dict[str, str]:
    return {"error_code": code, "error_message": message}
