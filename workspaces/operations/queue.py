"""Operation rows: every write of them is here, each a guarded update.

Services enqueue and cancel; the vmhost that owns the claim renews its lease, records steps and facts and finishes;
reconcile requeues and takes over. A claim owner that lost its claim gets ClaimLost at its next write: the operation was
cancelled, expired or given to another attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from common import counters
from common.log_context import operation_logged
from common.work.leases import ClaimLost, Lease, new_claim, owned_rows, release_row
from common.work.wakeups import task_send
from vmbackend.host_states import lease_stands
from workspaces import counted
from workspaces.errors import OperationInProgress
from workspaces.models import Operation, Snapshot, Workspace
from workspaces.models.operation import LIVE, WAITS_FOR_HOST, OperationKind, OperationState
from workspaces.models.snapshot import SnapshotStatus
from workspaces.operations import waiting

logger = logging.getLogger(__name__)

RUN_TASK = "workspaces.tasks.run_operation"
# The host's heartbeat thread notifies again of an operation that was not claimed for that long.
NOTIFY_AGAIN_AFTER = timedelta(seconds=5)
# Six renewals. No other host takes over an operation: a host's operations are its own (`reconcile.operations`).
LEASE = Lease(timedelta(seconds=30))
MOVES_AT_ONCE = 2
_RUNNING = Q(state=OperationState.RUNNING)


def enqueue_operation(
    workspace: Workspace, kind: OperationKind, *, actor: str, params: dict[str, Any] | None = None
) -> Operation:
    """Queue an operation in the caller's transaction, and notify the host when that commits.

    Raise OperationInProgress if one is live. The deadline runs from now.
    """
    now = timezone.now()
    try:
        with transaction.atomic():
            operation = Operation.objects.create(
                workspace=workspace,
                account_id=workspace.account_id,
                kind=kind,
                params=params or {},
                queue=workspace.host.queue if workspace.host else "default",
                actor=actor[:160],
                created_at=now,
                notified_at=now,
                deadline_at=now + _time_for(kind),
            )
    except IntegrityError:
        raise OperationInProgress from None
    with operation_logged(operation.pk, workspace.pk):
        logger.info("%s of %s requested by %s", kind, workspace.pk, actor)
    transaction.on_commit(lambda: notify_host(operation))
    return operation


def _time_for(kind: str) -> timedelta:
    env = settings.ENV
    own = {OperationKind.CREATE: env.create_seconds, OperationKind.MOVE: env.move_seconds}
    return timedelta(seconds=own.get(OperationKind(kind), env.power_seconds))


def overdue_operations() -> QuerySet[Operation]:
    """Return the live operations past their deadline. The time of one that waited for its host counts from the host's
    return.
    """
    since = "workspace__host__lease_since"
    had_time = Q(created_at__gte=F(since)) | Q(**{f"{since}__lt": Now() - _time_for(OperationKind.STOP)})
    overdue = Operation.objects.filter(state__in=LIVE, deadline_at__lt=timezone.now())
    waited = lease_stands("workspace__host__") & had_time
    return overdue.filter(~Q(kind__in=WAITS_FOR_HOST) | waited).order_by("deadline_at")


def notify_host(operation: Operation) -> None:
    """Wake the host's vmhost by a task. If that fails (Redis is down), its heartbeat thread repeats it."""
    notify_queue(operation.queue, operation.pk)


def notify_queue(name: str, operation_id: str) -> None:
    """Do what `notify_host` does, for the host of a queue."""
    task_send(RUN_TASK, name, [operation_id])


def account_of_queued(operation_id: str) -> str | None:
    """Return the id of the operation's account, or None if the operation is not queued (any more)."""
    queued = Operation.objects.filter(pk=operation_id, state=OperationState.QUEUED)
    return queued.values_list("workspace__account_id", flat=True).first()


def live_operation(workspace: Workspace, *kinds: OperationKind) -> Operation | None:
    """Return the live operation of a workspace (of these kinds), if there is one."""
    found = Operation.objects.filter(workspace=workspace, state__in=LIVE)
    return (found.filter(kind__in=kinds) if kinds else found).order_by("created_at").first()


def claim_operation(operation_id: str, token: str) -> Operation | None:
    """Claim a queued operation under a token that its process holds already.

    Return None if it is not available, or if the claim was lost before its row was read.

    A delete is available only once nothing else is in flight on its workspace: it follows the operations that it
    cancelled. A creation of a fork is available once the snapshot of its parent is complete, or has failed; a move
    while fewer than MOVES_AT_ONCE run on its host.
    """
    operation = Operation.objects.filter(pk=operation_id, state=OperationState.QUEUED).first()
    if operation is None:
        return None
    if operation.kind == OperationKind.DELETE and _others_live(operation):
        return None
    if operation.kind == OperationKind.CREATE and _awaits_snapshot(operation):
        return None
    if operation.kind == OperationKind.MOVE and _moves_running(operation.queue) >= MOVES_AT_ONCE:
        return None
    queued = Operation.objects.filter(pk=operation_id, state=OperationState.QUEUED)
    columns: dict[str, Any] = {"state": OperationState.RUNNING, "attempt": F("attempt") + 1, "step": ""}
    now = timezone.now()
    if operation.kind in WAITS_FOR_HOST and operation.deadline_at <= now:  # it waited for the host, which is back
        columns["deadline_at"] = now + _time_for(operation.kind)
    else:
        queued = queued.filter(deadline_at__gt=now)
    if not LEASE.take_rows(queued, token, **columns):
        return None
    return Operation.objects.filter(pk=operation_id, claim=token).first()


def _others_live(operation: Operation) -> bool:
    return (
        Operation.objects.filter(workspace_id=operation.workspace_id, state__in=LIVE).exclude(pk=operation.pk).exists()
    )


def _moves_running(queue: str) -> int:
    """Return how many moves leave a host now. Two that are claimed at once may both be one too many, which is harmless:
    the limit is for disk and network.
    """
    return Operation.objects.filter(queue=queue, state=OperationState.RUNNING, kind=OperationKind.MOVE).count()


def _awaits_snapshot(operation: Operation) -> bool:
    """Return whether the snapshot that a fork is made from is still being made."""
    key = operation.params.get("snapshot")
    return bool(key) and Snapshot.objects.filter(pk=key, status=SnapshotStatus.CREATING).exists()


def notify_copies(snapshot_id: str) -> None:
    """Notify the host of the creations that waited for a snapshot."""
    for operation in Operation.objects.filter(state=OperationState.QUEUED, params__snapshot=snapshot_id):
        notify_host(operation)


def renew_leases(claims: Iterable[str]) -> None:
    """Renew the leases of a living claim owner: one update for all its claims."""
    Operation.objects.filter(_RUNNING, claim__in=list(claims)).update(lease_until=LEASE.end())


def record_step(operation: Operation, name: str) -> None:
    """Record which step comes next. Raise ClaimLost."""
    LEASE.write_row(operation, _RUNNING, step=name)


def record_facts(operation: Operation, **facts: Any) -> None:
    """Add facts to the params, for later attempts and for the settlement of a machine's end."""
    with transaction.atomic():
        row = Operation.objects.select_for_update(of=("self",)).filter(pk=operation.pk).first()
        if row is not None:
            operation.params = {**row.params, **facts}
            Operation.objects.filter(pk=operation.pk).update(params=operation.params)


def is_cancelled(operation: Operation) -> bool:
    """Return whether a delete has requested the end of this operation. Raise ClaimLost."""
    row = owned_rows(operation).filter(_RUNNING).values_list("cancel_requested", flat=True).first()
    if row is None:
        raise ClaimLost(operation.pk)
    return row


def finish_operation(operation: Operation, state: OperationState, *, code: str = "", message: str = "") -> None:
    """End a claimed operation, in the transaction of its workspace's transition. Raise ClaimLost; roll back then."""
    now = timezone.now()
    changed = release_row(
        operation,
        _RUNNING,
        state=state,
        finished_at=now,
        error_code=code,
        error_message=message,
        attention_at=now if _wants_attention(operation, state, now) else None,
    )
    if not changed:
        raise ClaimLost(operation.pk)
    operation.state, operation.error_code, operation.error_message = state, code, message
    _count_on_commit(operation)
    announce_on_commit(operation)


def _wants_attention(operation: Operation, state: OperationState, now: datetime) -> bool:
    """Return whether staff should look at the operation: it failed, or took more than half of the time that it had."""
    if state == OperationState.FAILED:
        return True
    return now - operation.created_at > (operation.deadline_at - operation.created_at) / 2


def _count_on_commit(operation: Operation) -> None:
    """Count for `/metrics` how operations end, and how long they take from the request on."""
    seconds = (timezone.now() - operation.created_at).total_seconds()
    additions = counted.OPERATIONS_ENDED.of(1, operation.kind, operation.state) + counted.OPERATION_SECONDS.of(
        seconds, operation.kind
    )
    transaction.on_commit(lambda: counters.record_additions(additions))


def announce_on_commit(operation: Operation) -> None:
    """Wake the waiting requests on commit, and notify the host of a delete that follows."""
    transaction.on_commit(lambda: waiting.announce_outcome(operation.pk))
    transaction.on_commit(lambda: notify_follower(operation.workspace_id))


def notify_follower(workspace_id: str) -> None:
    """Notify the host of the operation that is queued on this workspace: a delete that waited for the end of
    another.
    """
    for operation in Operation.objects.filter(workspace_id=workspace_id, state=OperationState.QUEUED):
        notify_host(operation)


def cancel_operations(workspace: Workspace) -> bool:
    """Cancel the operations in flight: queued ones at once, a running one at its next step. Return whether one is
    running.
    """
    others = Operation.objects.filter(workspace=workspace).exclude(kind=OperationKind.DELETE)
    for operation in others.filter(state=OperationState.QUEUED):
        ended = Operation.objects.filter(pk=operation.pk, state=OperationState.QUEUED).update(
            state=OperationState.CANCELLED, finished_at=timezone.now()
        )
        if ended:
            operation.state = OperationState.CANCELLED
            _count_on_commit(operation)
            announce_on_commit(operation)
    return bool(others.filter(state=OperationState.RUNNING).update(cancel_requested=True))


def cancel_move(operation_id: str) -> None:
    """Let the host of a move end it at its next step. It stays queued until its host looks at it."""
    Operation.objects.filter(pk=operation_id, state__in=LIVE).update(cancel_requested=True)


def requeue_operation(operation: Operation, *, because: str, after: float = 0) -> bool:
    """Queue a running operation for the next attempt, in `after` seconds. Return False if the claim is lost.

    The host's heartbeat thread notifies of a delayed attempt, a few seconds late at most.
    """
    notified_at = timezone.now() + timedelta(seconds=after) - (NOTIFY_AGAIN_AFTER if after else timedelta())
    changed = release_row(operation, _RUNNING, state=OperationState.QUEUED, notified_at=notified_at)
    if changed:
        logger.warning("%s %s is retried: %s", operation.kind, operation.pk, because)
        transaction.on_commit(lambda: counters.record_additions(counted.OPERATION_RETRIES.of(1, operation.kind)))
        if not after:
            transaction.on_commit(lambda: notify_host(operation))
    return changed


def take_over_operation(operation: Operation) -> Operation | None:
    """Claim a live operation in order to fail it: past its deadline or out of attempts. Return None if it changed."""
    unchanged = Operation.objects.filter(pk=operation.pk, state=operation.state, claim=operation.claim)
    claim = new_claim()
    if not LEASE.take_rows(unchanged, claim, state=OperationState.RUNNING):
        return None
    return Operation.objects.filter(pk=operation.pk, claim=claim).first()


def mark_unnotified(queue: str, before: datetime) -> list[Operation]:
    """Return the queued operations of a host that was last notified of them before that time, and mark them as notified
    now.

    Operations that seem to have been notified in the far future are included: the host's clock was set back since.
    """
    due = Q(notified_at__lt=before) | Q(notified_at__gt=timezone.now() + _longest_delay())
    queued = Operation.objects.filter(due, queue=queue, state=OperationState.QUEUED)
    found = list(queued.order_by("notified_at")[:50])
    Operation.objects.filter(pk__in=[o.pk for o in found]).update(notified_at=timezone.now())
    return found


def _longest_delay() -> timedelta:
    """Return a time longer than the delay of the last attempt (`requeue_operation`)."""
    return timedelta(seconds=8 * settings.ENV.retry_seconds) + NOTIFY_AGAIN_AFTER
