"""Changing resources and the size of the writable disk (specification, Resources, Filesystem)."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction
from django.utils import timezone

from accounts.services import account_lock
from workspaces import quota, rows
from workspaces.audit import record_activity
from workspaces.errors import InvalidResources, OperationInProgress, VmMissing
from workspaces.host_away import require_reachable
from workspaces.images import choice
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.workspace import SIZES
from workspaces.power import (
    begin_operation,
    require_growth_allowed,
    require_host,
    require_no_operation,
    sizes_of,
)
from workspaces.quota import Amount
from workspaces.states import TRANSITIONAL, Status
from workspaces.transitions import require_status


@transaction.atomic
def resources_update(*, workspace: Workspace, actor: str, changes: dict[str, int], apply: bool) -> Operation | None:
    """Save new sizes; with `apply` a running workspace is relaunched with them (the operation is returned).

    `changes`: columns cpu_millis, memory_mb, disk_size_mb. Without `apply`, or if the workspace does not run, they wait
    for the next start. Raise InvalidResources (a disk that would shrink), ResourceNotAllowed, NamespaceLimitReached,
    PoolLimitReached, RunningPoolReached, OperationInProgress, VmMissing, VMUnavailable; nothing has changed then.
    """
    account_lock(workspace.account)
    rows.lock_and_read(workspace)
    if workspace.status == Status.DESTROYED:
        raise VmMissing
    before = quota.amount_of(workspace)
    wanted = replace(before, **changes)
    require_sizes_allowed(workspace, before, wanted)
    if apply and workspace.status != Status.STOPPED:
        require_reachable(workspace)
    if apply and workspace.status in TRANSITIONAL:
        raise OperationInProgress(details={"status": workspace.status})
    if apply and workspace.status == Status.RUNNING:
        require_growth_allowed(workspace, wanted)
        return _resize(workspace, actor, wanted, wanted, was_running=True)
    rows.update_row(workspace, **changes, updated_at=timezone.now())
    workspace.refresh_from_db()
    record_activity(workspace, "resources_changed", "New resources were saved for the next start.", actor=actor)
    return None


def require_sizes_allowed(workspace: Workspace, before: Amount, wanted: Amount) -> None:
    """Check new sizes under the account's lock. Raise InvalidResources and the limit errors of `services.quota`."""
    if wanted.disk_size_mb < workspace.applied_disk_size_mb:
        message = f"A disk cannot shrink; it has {workspace.applied_disk_size_mb} MiB."
        raise InvalidResources(details={"disk_size_mb": [message]})
    if workspace.desktop_enabled:
        short = choice.short_for_desktop(workspace.catalog_snapshot, quota.columns_of(wanted))
        if short:
            raise InvalidResources(details=short)
    plan, more = workspace.account.plan, quota.growth(before, wanted)
    quota.require_plan_allows(plan, wanted)
    if more != Amount(0, 0, 0, 0):
        quota.require_namespace_limits(workspace.namespace, wanted, new=False)
    quota.require_owned_pool(plan, quota.account_usage(workspace.account), more)


def _resize(workspace: Workspace, actor: str, saved: Amount, machine: Amount, *, was_running: bool) -> Operation:
    require_no_operation(workspace)
    require_host(workspace)
    sizes = {
        "cpu_millis": saved.cpu_millis,
        "memory_mb": saved.memory_mb,
        "disk_size_mb": saved.disk_size_mb,
        **quota.applied_columns(machine),
    }
    params = {"before": sizes_of(workspace, SIZES), "wanted": sizes, "was_running": was_running}
    return begin_operation(workspace, Status.RESIZING, OperationKind.RESIZE, actor, params, **sizes)


@transaction.atomic
def overlay_resize(*, workspace: Workspace, actor: str, size_mb: int) -> Operation | None:
    """Grow the disk now: a running workspace is stopped, resized and relaunched. Return None if it already has that
    size.

    Raise what `resources_update` raises, and InvalidState (neither running nor stopped).
    """
    account_lock(workspace.account)
    rows.lock_and_read(workspace)
    if workspace.status == Status.DESTROYED:
        raise VmMissing
    require_reachable(workspace)
    require_no_operation(workspace)
    require_status(workspace, frozenset({Status.RUNNING, Status.STOPPED}), "be resized")
    before = quota.amount_of(workspace)
    wanted = replace(before, disk_size_mb=size_mb)
    require_sizes_allowed(workspace, before, wanted)
    if size_mb == workspace.applied_disk_size_mb == workspace.disk_size_mb:
        return None
    running = workspace.status == Status.RUNNING
    # Only the disk was requested: saved CPUs and memory still wait for the next start.
    machine = replace(quota.applied_amount(workspace), disk_size_mb=size_mb)
    if running:
        require_growth_allowed(workspace, machine)
    return _resize(workspace, actor, wanted, machine, was_running=running)
