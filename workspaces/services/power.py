"""Start and stop: guarded moves that queue an operation."""

from __future__ import annotations

from django.db import transaction

from accounts.services import account_lock
from common.errors import VMUnavailable
from namespaces import selectors as namespaces
from workspaces.errors import OperationInProgress, VmMissing
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.operations import queue
from workspaces.services import quota
from workspaces.services.create import provisioning_retry
from workspaces.services.placement import require_room_on
from workspaces.states import TRANSITIONAL, Status, TransitionLost, require, transition

STARTABLE = frozenset({Status.STOPPED, Status.LOST, Status.PAUSED, Status.SLEEPING})
STOPPABLE = frozenset({Status.RUNNING, Status.PAUSED})


@transaction.atomic
def workspace_start(*, workspace: Workspace, actor: str, force: bool = False) -> Operation | None:
    """Queue a start; None where it runs already.

    `force` skips the state checks (a failed creation is tried again), but what is in flight is respected. Raises
    InvalidState, VmMissing (destroyed),
    OperationInProgress, NamespaceSuspended, RunningPoolReached, VMUnavailable; nothing has changed then.
    """
    account = account_lock(workspace.account)
    workspace.refresh_from_db()
    if workspace.status == Status.RUNNING and not force:
        return None
    _require_free(workspace)
    if workspace.status == Status.DESTROYED:
        raise VmMissing
    if workspace.status == Status.FAILED and force:
        return provisioning_retry(workspace=workspace, actor=actor)
    allowed = STARTABLE | {Status.RUNNING} if force else STARTABLE
    require(workspace, allowed, "be started")
    namespaces.require_open(workspace.namespace)
    if not workspace.is_running:
        quota.require_running_room(account.plan, quota.usage(account), quota.amount_of(workspace))
    _require_host(workspace)
    return _move(workspace, Status.STARTING, OperationKind.START, actor)


@transaction.atomic
def workspace_stop(*, workspace: Workspace, actor: str) -> Operation | None:
    """Queue a stop; None where it is stopped already. Raises InvalidState, OperationInProgress, VMUnavailable."""
    workspace.refresh_from_db()
    if workspace.status == Status.STOPPED:
        return None
    _require_free(workspace)
    require(workspace, STOPPABLE, "be stopped")
    if workspace.host is None or not workspace.host.is_alive:
        raise VMUnavailable("The host of this workspace cannot be reached; try again later.")
    return _move(workspace, Status.STOPPING, OperationKind.STOP, actor)


def _require_free(workspace: Workspace) -> None:
    if workspace.status in TRANSITIONAL or queue.live(workspace):
        raise OperationInProgress(details={"status": workspace.status})


def _require_host(workspace: Workspace) -> None:
    if workspace.host is None:
        raise VMUnavailable("This workspace has no host.")
    require_room_on(workspace.host, quota.amount_of(workspace))


def _move(workspace: Workspace, to: Status, kind: OperationKind, actor: str) -> Operation:
    try:
        transition(workspace, to)
    except TransitionLost:
        raise OperationInProgress(details={"status": workspace.status}) from None
    return queue.enqueue(workspace, kind, actor=actor)
