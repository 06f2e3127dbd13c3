"""Start, stop, restart, pause, resume, sleep, wake: guarded transitions that queue an operation; the steps are in
`host/steps`.

All raise InvalidState, OperationInProgress and VMUnavailable, and nothing has changed then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.services import account_lock
from common.errors import InvalidState, VMUnavailable
from credits.enforcement import require_credits
from credits.models import Service
from credits.refusals import refusals_announced
from namespaces import selectors as namespaces
from namespaces.services import namespace_used
from vmbackend.host_states import HostState
from workspaces import last_used, quota
from workspaces.crud.services import provisioning_retry
from workspaces.errors import OperationInProgress, VmMissing
from workspaces.host_away import is_lost_with_host, require_live_host, require_reachable
from workspaces.models import Operation, Workspace
from workspaces.models.operation import KEEPS_STATUS, OperationKind
from workspaces.operations import queue, waiting
from workspaces.placement import require_host_disk, require_host_memory
from workspaces.rows import lock_and_read, update_if
from workspaces.states import TRANSITIONAL, Status
from workspaces.transitions import TransitionLost, require_status, transition

STARTABLE = frozenset({Status.STOPPED, Status.LOST, Status.PAUSED, Status.SLEEPING})
STOPPABLE = frozenset({Status.RUNNING, Status.PAUSED, Status.SLEEPING})
RUNS = frozenset({Status.RUNNING})


@refusals_announced()
@transaction.atomic
def workspace_start(
    *, workspace: Workspace, actor: str, force: bool = False, by_policy: bool = False
) -> Operation | None:
    """Queue a start, a resume (paused) or a wake (asleep). Return None if the workspace is running.

    `force` skips the state checks (a failed creation is tried again), but not the check for an operation in flight.
    `by_policy`: requested by the restart policy, whose count is not reset. Raise VmMissing (destroyed),
    NamespaceSuspended, QuotaExceeded, RunningPoolReached beside the module's errors.
    """
    account_lock(workspace.account)
    lock_and_read(workspace)
    require_reachable(workspace)
    if workspace.status == Status.RUNNING and not force:
        return None
    require_open_namespace(workspace)
    require_no_operation(workspace)
    if workspace.status == Status.DESTROYED:
        raise VmMissing
    if workspace.status == Status.FAILED and force:
        return provisioning_retry(workspace=workspace, actor=actor)
    if is_lost_with_host(workspace):
        raise InvalidState(workspace.error_message, details={"status": workspace.status})
    require_status(workspace, STARTABLE | RUNS if force else STARTABLE, "be started")
    if workspace.status == Status.PAUSED:
        return _resume(workspace, actor)
    if workspace.status == Status.SLEEPING:
        return _wake(workspace, actor)
    return _start(workspace, actor, by_policy)


def _start(workspace: Workspace, actor: str, by_policy: bool) -> Operation:
    fields: dict[str, Any] = {"user_requested_stop": False}
    if not by_policy:
        fields["restart_count"] = 0
    if workspace.status == Status.RUNNING:
        use_namespace(workspace)
        require_host_disk(require_host(workspace))
    else:
        require_start_allowed(workspace)
        fields |= {**quota.applied_columns(quota.amount_of(workspace)), "restart_due_at": None}
    return begin_operation(workspace, Status.STARTING, OperationKind.START, actor, {"by_policy": by_policy}, **fields)


def require_start_allowed(workspace: Workspace, wanted: quota.Amount | None = None) -> None:
    """Check that a machine that is off may be started with `wanted`, by default the row's resources. Call it under the
    account's lock.

    Raise NamespaceSuspended, QuotaExceeded, RunningPoolReached, VMUnavailable.
    """
    wanted = wanted or quota.amount_of(workspace)
    use_namespace(workspace)
    quota.require_running_pool(workspace.account.plan, quota.account_usage(workspace.account), wanted)
    if workspace.host is None:
        raise VMUnavailable("This workspace has no host.")
    require_host_disk(workspace.host)
    require_host_memory(workspace.host, wanted)


def require_open_namespace(workspace: Workspace) -> None:
    """Check the namespace before the state of the workspace: the answer does not depend on it. Raise what
    `use_namespace` raises.
    """
    namespaces.require_open(workspace.namespace)
    require_credits(workspace.namespace, Service.SANDBOX)


def use_namespace(workspace: Workspace) -> None:
    """Check the namespace, and note its use. Raise NamespaceSuspended, QuotaExceeded, InvalidState (it is being
    deleted).
    """
    require_open_namespace(workspace)
    namespace_used(workspace.namespace)


@transaction.atomic
def workspace_stop(*, workspace: Workspace, actor: str, by_user: bool = True, because: str = "") -> Operation | None:
    """Queue a stop. Return None if the workspace is stopped already. A sleeping one loses its memory. Ends a pending
    restart. If its host cannot be reached, the operation waits for it.
    """
    workspace.refresh_from_db()
    if cancel_restart(workspace) or workspace.status == Status.STOPPED:
        return None
    require_no_operation(workspace)
    require_status(workspace, STOPPABLE, "be stopped")
    require_placed(workspace)
    params = {"by_user": by_user, "because": because}
    fields: dict[str, Any] = {"started_at": None} if workspace.status == Status.SLEEPING else {}
    fields["user_requested_stop"] = by_user
    return begin_operation(workspace, Status.STOPPING, OperationKind.STOP, actor, params, **fields)


def cancel_restart(workspace: Workspace) -> bool:
    """Cancel a planned restart, as the workspace is to stay stopped. Return False if none is planned."""
    restart_pending = Q(status__in=[Status.STOPPED, Status.LOST], restart_due_at__isnull=False)
    return update_if(workspace, restart_pending, restart_due_at=None, user_requested_stop=True)


@refusals_announced()
@transaction.atomic
def workspace_restart(*, workspace: Workspace, actor: str) -> Operation:
    """Queue a stop and a start as one operation; saved resources are applied.

    Raise NamespaceSuspended, QuotaExceeded, RunningPoolReached beside the module's errors.
    """
    account_lock(workspace.account)
    lock_and_read(workspace)
    require_reachable(workspace)
    require_open_namespace(workspace)
    require_no_operation(workspace)
    require_status(workspace, RUNS, "be restarted")
    use_namespace(workspace)
    require_growth_allowed(workspace, quota.amount_of(workspace))
    sizes = quota.applied_columns(quota.amount_of(workspace))
    params = {"before": sizes_of(workspace, sizes), "wanted": sizes}
    return begin_operation(workspace, Status.RESTARTING, OperationKind.RESTART, actor, params, **sizes, restart_count=0)


def sizes_of(workspace: Workspace, names: Iterable[str]) -> dict[str, int]:
    """Return the current sizes, which the operation restores if the new ones cannot be applied."""
    return {name: getattr(workspace, name) for name in names}


def require_growth_allowed(workspace: Workspace, wanted: quota.Amount) -> None:
    """Check that a running machine may come back with `wanted`. Call it under the account's lock.

    Raise RunningPoolReached, VMUnavailable.
    """
    more = quota.growth(quota.applied_amount(workspace), wanted)
    quota.require_running_pool(workspace.account.plan, quota.account_usage(workspace.account), more)
    host = require_host(workspace)
    require_host_disk(host)
    if more.memory_mb:
        require_host_memory(host, more)


@transaction.atomic
def workspace_pause(*, workspace: Workspace, actor: str, because: str = "", by_ttl: bool = False) -> Operation:
    """Queue a pause: the machine keeps its memory and uses no CPU. `by_ttl`: it consumes the TTL."""
    workspace.refresh_from_db()
    require_reachable(workspace)
    require_no_operation(workspace)
    require_status(workspace, RUNS, "be paused")
    require_host(workspace)
    return begin_operation(
        workspace, Status.PAUSING, OperationKind.PAUSE, actor, {"because": because, "by_ttl": by_ttl}
    )


@refusals_announced()
@transaction.atomic
def workspace_resume(*, workspace: Workspace, actor: str) -> Operation | None:
    """Queue a resume (paused) or a wake (asleep). Return None if the workspace runs already.

    Raise NamespaceSuspended, QuotaExceeded and, for a sleeping one, RunningPoolReached beside the module's errors.
    """
    account_lock(workspace.account)
    lock_and_read(workspace)
    require_reachable(workspace)
    require_open_namespace(workspace)
    if workspace.status == Status.RUNNING:
        return None
    require_no_operation(workspace)
    require_status(workspace, frozenset({Status.PAUSED, Status.SLEEPING}), "be resumed")
    if workspace.status == Status.SLEEPING:
        return _wake(workspace, actor)
    return _resume(workspace, actor)


def _resume(workspace: Workspace, actor: str) -> Operation:
    use_namespace(workspace)
    require_host_disk(require_host(workspace))
    return begin_operation(workspace, Status.RESUMING, OperationKind.RESUME, actor)


@transaction.atomic
def workspace_sleep(*, workspace: Workspace, actor: str, idle: bool = False) -> Operation:
    """Queue a sleep: memory to the host's disk. With `idle` the host looks once more whether the workspace is
    in use. If its host cannot be reached, the operation waits for it.
    """
    workspace.refresh_from_db()
    require_no_operation(workspace)
    require_status(workspace, RUNS, "be put to sleep")
    require_placed(workspace)
    return begin_operation(workspace, Status.SUSPENDING, OperationKind.SLEEP, actor, {"idle": idle})


@refusals_announced()
@transaction.atomic
def workspace_wake(*, workspace: Workspace, actor: str) -> Operation | None:
    """Wake a sleeping workspace for a request to it, or join the wake that goes on. Return None if it runs.

    Raise NamespaceSuspended, QuotaExceeded, RunningPoolReached beside the module's errors.
    """
    account_lock(workspace.account)
    lock_and_read(workspace)
    require_reachable(workspace)
    if workspace.status == Status.RUNNING:
        return None
    if workspace.status == Status.WAKING:
        return queue.live_operation(workspace, OperationKind.WAKE)
    require_no_operation(workspace)
    require_status(workspace, frozenset({Status.SLEEPING}), "be woken")
    return _wake(workspace, actor)


def _wake(workspace: Workspace, actor: str) -> Operation:
    """Queue a wake with the sizes that the workspace slept with: saved memory fits no other machine."""
    needed = quota.applied_amount(workspace)
    use_namespace(workspace)
    quota.require_running_pool(workspace.account.plan, quota.account_usage(workspace.account), needed)
    host = require_host(workspace)
    require_host_disk(host)
    require_host_memory(host, needed)
    return begin_operation(workspace, Status.WAKING, OperationKind.WAKE, actor)


def require_no_operation(workspace: Workspace) -> None:
    """Raise OperationInProgress if one is in flight."""
    if workspace.status in TRANSITIONAL or queue.live_operation(workspace):
        raise OperationInProgress(details={"status": workspace.status})


def require_host(workspace: Workspace) -> Any:
    """Return the living host of the workspace. Raise VMUnavailable."""
    if workspace.host is None:
        raise VMUnavailable("This workspace has no host.")
    require_live_host(workspace.host)
    return workspace.host


def require_placed(workspace: Workspace) -> None:
    """Check that the host carries an operation out, now or when it is back. Raise VMUnavailable if it was given up, or
    its hypervisor does not answer.
    """
    host = workspace.host
    if host is None or host.state == HostState.GONE or host.has_lease:
        require_host(workspace)


def begin_operation(
    workspace: Workspace,
    to: Status,
    kind: OperationKind,
    actor: str,
    params: dict[str, Any] | None = None,
    **fields: Any,
) -> Operation:
    """Make the guarded transition and queue its operation, in the caller's transaction. Raise OperationInProgress.

    The operation's params say `from` which status.
    """
    params = {"from": workspace.status, **(params or {})}
    try:
        transition(workspace, to, **fields)
    except TransitionLost:
        raise OperationInProgress(details={"status": workspace.status}) from None
    return queue.enqueue_operation(workspace, kind, actor=actor, params=params)


ACTOR = "request"


def ensure_running(workspace: Workspace, timeout: float) -> bool:
    """Record the use, and wake the workspace if it sleeps; at most `timeout` seconds. Return True once it runs.

    Concurrent requests share one wake; a workspace that is falling asleep, that moves to another host, or of which a
    snapshot is being made, is woken after that. Return False if it did not wake in time or the wake failed. Raise
    InvalidState (it is stopped, paused, ...), NamespaceSuspended, QuotaExceeded, RunningPoolReached, VMUnavailable,
    OperationInProgress (another operation is in flight).
    """
    require_reachable(workspace)
    last_used.record_use(workspace.pk)
    if workspace.status == Status.RUNNING and workspace.ready:
        return True
    until = time.monotonic() + timeout
    before = queue.live_operation(workspace, OperationKind.SLEEP, OperationKind.MOVE, *KEEPS_STATUS)
    if before is not None and waiting.wait_for_outcome(before, timeout) is None:
        return False
    operation = workspace_wake(workspace=workspace, actor=ACTOR)
    if operation is not None and waiting.wait_for_outcome(operation, until - time.monotonic()) is None:
        return False
    return bool(Workspace.objects.filter(pk=workspace.pk, status=Status.RUNNING, ready=True).exists())
