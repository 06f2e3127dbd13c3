"""Mode, TTL, ping and idle policy: changes of the record that take effect at once (specification, Lifecycle and power).

Each raises InvalidState if the mode of the workspace does not allow the change; nothing has changed then.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from common.errors import InvalidState
from workspaces.errors import IdleNotSupported
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.workspace import Mode, RestartPolicy
from workspaces.power import (
    begin_operation,
    require_no_operation,
    require_placed,
    workspace_sleep,
)
from workspaces.rows import lock_current, update_columns, write_columns
from workspaces.states import Status

NO_SNAPSHOTS = "The host of this workspace cannot save the memory of a machine to disk."
TEMPORARY = "A temporary workspace has no idle policy; make it permanent first."


@transaction.atomic
def make_permanent(*, workspace: Workspace, actor: str, restart_policy: str = RestartPolicy.ALWAYS) -> Workspace:
    """Remove the TTL; the restart policy applies from now on."""
    return write_columns(
        workspace,
        "made_permanent",
        f"The workspace is permanent now; restart policy {restart_policy}.",
        actor,
        mode=Mode.PERMANENT,
        ttl_seconds=None,
        ttl_expires_at=None,
        ttl_length=None,
        remove_on_exit=False,
        restart_policy=restart_policy,
    )


@transaction.atomic
def make_temporary(*, workspace: Workspace, actor: str, ttl: int, ttl_action: str, remove_on_exit: bool) -> Workspace:
    """Set a TTL (seconds from now); restarts and the idle policy are disabled."""
    return write_columns(
        workspace,
        "made_temporary",
        f"The workspace is temporary now; in {ttl} seconds: {ttl_action}.",
        actor,
        mode=Mode.TEMPORARY,
        ttl_seconds=ttl,
        ttl_action=ttl_action,
        ttl_expires_at=timezone.now() + timedelta(seconds=ttl),
        ttl_length=ttl,
        remove_on_exit=remove_on_exit,
        restart_policy=RestartPolicy.NO,
        restart_due_at=None,
        suspend_after=0,
        stop_after=0,
        idle_due_at=None,
        memory_expires_at=None,
    )


@transaction.atomic
def change_ttl(*, workspace: Workspace, actor: str, ttl: int | None = None, ttl_action: str | None = None) -> Workspace:
    """Change the TTL of a temporary workspace, its action, or both. A new `ttl` (seconds) runs from now."""
    lock_current(workspace)
    _require_temporary(workspace, "has no ttl")
    columns: dict[str, Any] = {}
    if ttl is not None:
        expires = timezone.now() + timedelta(seconds=ttl)
        columns |= {"ttl_seconds": ttl, "ttl_expires_at": expires, "ttl_length": ttl}
    if ttl_action is not None:
        columns["ttl_action"] = ttl_action
    return write_columns(workspace, "ttl_changed", "The time to live was changed.", actor, **columns)


@transaction.atomic
def workspace_ping(*, workspace: Workspace, actor: str, ttl: int | None = None) -> Workspace:
    """Renew the TTL: from now, by its own length or this once by `ttl` seconds."""
    lock_current(workspace)
    _require_temporary(workspace, "cannot be pinged")
    seconds = ttl or workspace.ttl_seconds
    if not seconds:
        raise InvalidState("This workspace has no ttl to renew.", details={"status": workspace.status})
    expires = timezone.now() + timedelta(seconds=seconds)
    update_columns(workspace, ttl_expires_at=expires, ttl_length=seconds)
    return workspace


@transaction.atomic
def set_idle(
    *, workspace: Workspace, actor: str, suspend_after: int | None = None, stop_after: int | None = None
) -> Workspace:
    """Sleep after `suspend_after` seconds without use (0: never); drop the memory after `stop_after` more (0: never).

    None leaves the value unchanged. Raise IdleNotSupported if the workspace cannot sleep.
    """
    lock_current(workspace)
    suspend_after = workspace.suspend_after if suspend_after is None else suspend_after
    if suspend_after:
        require_idle_supported(workspace)
    stop_after = workspace.stop_after if stop_after is None else stop_after
    now = timezone.now()
    columns: dict[str, Any] = {
        "suspend_after": suspend_after,
        "stop_after": stop_after,
        "idle_due_at": now + timedelta(seconds=suspend_after) if suspend_after else None,
    }
    if workspace.status == Status.SLEEPING:
        columns["memory_expires_at"] = now + timedelta(seconds=stop_after) if stop_after else None
    detail = f"It sleeps after {suspend_after} seconds without use." if suspend_after else "It does not sleep."
    return write_columns(workspace, "idle_changed", detail, actor, **columns)


@transaction.atomic
def workspace_sleep_at_once(*, workspace: Workspace, actor: str) -> Operation:
    """Queue a sleep that its owner asks for; the idle policy is not changed, and a temporary workspace keeps its TTL.

    Raise IdleNotSupported, OperationInProgress, InvalidState, VMUnavailable.
    """
    workspace.refresh_from_db()
    problem = snapshot_problem(workspace)
    if problem:
        raise IdleNotSupported(problem)
    return workspace_sleep(workspace=workspace, actor=actor)


def snapshot_problem(workspace: Workspace) -> str | None:
    """Return why the memory of this workspace cannot be saved to disk, or None if it can."""
    if workspace.host is not None and not workspace.host.snapshots:
        return NO_SNAPSHOTS
    return None


def require_idle_supported(workspace: Workspace) -> None:
    """Raise IdleNotSupported if the workspace cannot have an idle policy."""
    if workspace.mode == Mode.TEMPORARY:
        raise IdleNotSupported(TEMPORARY)
    problem = snapshot_problem(workspace)
    if problem:
        raise IdleNotSupported(problem)


def _require_temporary(workspace: Workspace, what: str) -> None:
    if workspace.mode != Mode.TEMPORARY:
        raise InvalidState(
            f"A permanent workspace {what}.", details={"status": workspace.status, "mode": workspace.mode}
        )


@transaction.atomic
def workspace_destroy(*, workspace: Workspace, actor: str) -> Operation | None:
    """Queue the removal of the machine and its disk; the record stays. Return None if it is already destroyed.

    Raise OperationInProgress, VMUnavailable.
    """
    workspace.refresh_from_db()
    if workspace.status == Status.DESTROYED:
        return None
    require_no_operation(workspace)
    require_placed(workspace)
    fields = {} if workspace.is_running else {"started_at": None}
    return begin_operation(workspace, Status.STOPPING, OperationKind.DESTROY, actor, **fields)
