"""Operations whose holder died, and operations past their deadline."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from workspaces.audit import record
from workspaces.host import restarts
from workspaces.host.context import recorded_facts
from workspaces.host.engine import MAX_ATTEMPTS
from workspaces.host.outcomes import assumed_status, rest_fields, rest_status, restore_sizes
from workspaces.host.runtime import HostRuntime
from workspaces.host.steps.create import mark_failed
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE, OperationKind, OperationState
from workspaces.operations import queue
from workspaces.rows import find_and_lock
from workspaces.states import TRANSITIONAL, Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

SILENT_AFTER = timedelta(seconds=20)
BATCH = 100


def settle_orphaned_operations(side: HostRuntime) -> int:
    """Running operations of this host that this process does not hold: their holder is dead.

    One vmhost runs on a host at a time (the hypervisor's own lock sees to it), so no waiting is needed.
    """
    orphans = Operation.objects.filter(queue=side.queue_name, state=OperationState.RUNNING).exclude(
        claim__in=side.claims
    )
    settled = 0
    for operation in list(orphans[:BATCH]):
        # Claimed by this process between the query and now?
        if operation.claim not in side.claims:
            settled += _settle(operation, "the process that ran it ended")
    return settled


def _settle(operation: Operation, because: str) -> bool:
    if operation.attempt < MAX_ATTEMPTS or operation.kind == OperationKind.DELETE:
        with transaction.atomic():
            return queue.requeue(operation, because=because)
    return fail_abandoned(
        operation, "internal_error", f"It was tried {operation.attempt} times and {because} each time."
    )


def expire_operations() -> int:
    """Fail operations past their deadline; the workspace goes to a state that its owner can act on."""
    overdue = Operation.objects.filter(state__in=LIVE, deadline_at__lt=timezone.now())
    return sum(
        fail_abandoned(operation, "deadline_exceeded", "It did not finish in time.")
        for operation in list(overdue.order_by("deadline_at")[:BATCH])
    )


def fail_abandoned(operation: Operation, code: str, sentence: str) -> bool:
    """End an operation from outside its holder, and move its workspace. False where it moved on meanwhile."""
    with transaction.atomic():
        workspace = find_and_lock(operation.workspace_id)
        taken = queue.take_over(operation)
        if taken is None or workspace is None:
            return False
        try:
            _release(workspace, taken, code, sentence)
        except TransitionLost:
            logger.info("%s had moved on already", workspace.pk)
        queue.finish(taken, OperationState.FAILED, code=code, sentence=sentence)
        record(workspace, f"{taken.kind}_failed", sentence)
    return True


def _release(workspace: Workspace, operation: Operation, code: str, sentence: str) -> None:
    """The state after a failure that nobody looked into: reconcile corrects it by what the host says."""
    if operation.kind == OperationKind.CREATE:
        mark_failed(workspace, code, sentence)
    elif operation.kind != OperationKind.DELETE:  # stays `deleting`; the next reconcile queues another delete
        if _took_no_sizes(operation):
            restore_sizes(workspace, operation.params)
        to = rest_status(workspace, assumed_status(operation))
        fields = {
            **rest_fields(workspace, to),
            **_error(code, sentence),
            **restarts.replan_restart(workspace, operation),
        }
        transition(workspace, to, leaving=TRANSITIONAL - {Status.DELETING}, **fields)


def _took_no_sizes(operation: Operation) -> bool:
    if operation.kind == OperationKind.RESIZE:
        return "applied" not in recorded_facts(operation)
    return operation.attempt == 0 and "before" in operation.params


def _error(code: str, sentence: str) -> dict[str, str]:
    return {"error_code": code, "error_message": sentence}
