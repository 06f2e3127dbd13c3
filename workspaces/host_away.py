"""A workspace whose host cannot be reached: what is refused at once, and what is stored until the host is back."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from django.db.models import F, Model, QuerySet

from common.errors import VMUnavailable
from common.times import iso
from vmbackend.host_states import UNREACHABLE, HostState, shown_since, shown_state
from vmbackend.models import Host
from workspaces.models import Workspace
from workspaces.states import HOST_LOST, Status

M = TypeVar("M", bound=Model)

RETRY_SECONDS = 30
# Why a change of the row has not reached the machine yet.
LATER = "The host of this workspace cannot be reached; it applies when the host is back."
_WITHOUT_MACHINE = frozenset({Status.FAILED, Status.DESTROYED})
_TEXTS = {
    UNREACHABLE: "The host of this workspace cannot be reached now; try again later.",
    HostState.GONE: "The host of this workspace was given up.",
}


def with_host(rows: QuerySet[M, M], prefix: str = "") -> QuerySet[M, M]:
    """Return the rows with name and state of the host joined in. `prefix`: the path to the workspace, as
    `workspace__`.
    """
    host = f"{prefix}host__"
    found: QuerySet[Any, Any] = rows.annotate(
        joined_host=F(f"{host}name"), joined_host_state=shown_state(host), joined_host_since=shown_since(host)
    )
    return found


def is_away(workspace: Workspace) -> bool:
    """Return whether the host cannot be reached: what the machine needs to hear waits for it."""
    return workspace.shown_host.state in _TEXTS


def require_reachable(workspace: Workspace) -> None:
    """Raise VMUnavailable if the host cannot be reached, at once; not for a workspace that has nothing there, or is
    lost with its host, as its status says.
    """
    is_lost = workspace.status == Status.LOST and workspace.shown_host.state == HostState.GONE
    if is_away(workspace) and not is_lost and workspace.status not in _WITHOUT_MACHINE:
        raise host_unavailable(workspace.shown_host.state, workspace.shown_host.since)


def require_live_host(host: Host) -> None:
    """Raise VMUnavailable unless the host carries out operations now."""
    if not host.is_reachable:
        raise host_unavailable(host.shown_state, host.shown_since)
    if host.problem:
        raise VMUnavailable(host.problem)


def host_unavailable(state: str | None, since: datetime | None) -> VMUnavailable:
    """Return the error of a workspace whose host cannot be reached, or was given up."""
    return VMUnavailable(
        _TEXTS[state or UNREACHABLE],
        details={"host_state": state, "host_since": iso(since)},
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def is_lost_with_host(workspace: Workspace) -> bool:
    """Return whether the workspace was lost with a host that was given up: nothing of it can be started."""
    return workspace.status == Status.LOST and workspace.error_code == HOST_LOST
