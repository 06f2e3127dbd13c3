"""Reinstall: the file system is reset to the image (specification, Lifecycle and power)."""

from __future__ import annotations

from django.db import transaction

from accounts.services import account_lock
from namespaces import selectors as namespaces
from workspaces import quota
from workspaces.errors import VmMissing
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.power.services import (
    begin_operation,
    require_growth_allowed,
    require_no_operation,
    require_start_allowed,
    sizes_of,
)
from workspaces.states import HAS_MACHINE, Status
from workspaces.transitions import require_status


@transaction.atomic
def workspace_reinstall(*, workspace: Workspace, actor: str) -> Operation:
    """Queue the reset of the file system to the image, and a start. Irreversible.

    Raises VmMissing (destroyed, or never created), OperationInProgress, NamespaceSuspended, QuotaExceeded,
    RunningPoolReached, VMUnavailable; nothing has changed then.
    """
    account_lock(workspace.account)
    workspace.refresh_from_db()
    if workspace.status in (Status.DESTROYED, Status.FAILED):
        raise VmMissing
    require_no_operation(workspace)
    require_status(workspace, HAS_MACHINE, "be reinstalled")
    if workspace.status in (Status.RUNNING, Status.PAUSED):
        namespaces.require_open(workspace.namespace)
        require_growth_allowed(workspace, quota.amount_of(workspace))
    else:
        require_start_allowed(workspace)
    sizes = quota.applied_columns(quota.amount_of(workspace))
    was_running = workspace.status == Status.RUNNING
    params = {"was_running": was_running, "before": sizes_of(workspace, sizes), "wanted": sizes}
    return begin_operation(
        workspace, Status.REINSTALLING, OperationKind.REINSTALL, actor, params, **sizes, restart_due_at=None
    )
