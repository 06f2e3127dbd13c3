"""The events of machines that no longer run (wire contract, section 7), published with the transition of their row."""

from __future__ import annotations

from typing import Any

from common.times import iso
from namespaces.selectors import slugs_of
from webhooks.events import NewEvent, publish_events
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE, OperationKind
from workspaces.states import HOST_DOWN, HOST_LOST, Status

ENDED_BY_ITSELF = frozenset({Status.RUNNING, Status.PAUSED})
HAD_MACHINE = ENDED_BY_ITSELF | {Status.SLEEPING}
# A snapshot after which the machine is to be off.
STOPS = frozenset({OperationKind.STOP, OperationKind.SNAPSHOT})
# Transitional states that may also be entered from a state without a machine.
_MAYBE_STOPPED_BEFORE = frozenset(
    {
        Status.CREATING,
        Status.STARTING,
        Status.REINSTALLING,
        Status.RESTORING,
        Status.RESIZING,
        Status.MOVING,
        Status.LOST,
    }
)


def publish_vm_event(workspace: Workspace, before: Status) -> None:
    """Publish `vm.exited`, `vm.stopped` or `vm.lost`, if a workspace that was `before` has stopped or is lost now.

    A start that failed, and other operations on a workspace that was stopped already, publish nothing.
    """
    to = Status(workspace.status)
    if to is Status.LOST:
        _publish(workspace, "vm.lost", _loss_data(workspace))
    elif to is Status.STOPPED and before in ENDED_BY_ITSELF:
        _publish(workspace, "vm.exited", _exit_data(workspace))
    elif to is Status.STOPPED:
        operation = Operation.objects.filter(workspace=workspace, state__in=LIVE).order_by("created_at").first()
        if _had_machine(before, operation):
            _publish(workspace, "vm.stopped", {"reason": _stop_reason(workspace, before, operation)})


def _loss_data(workspace: Workspace) -> dict[str, Any]:
    """Return the data of a loss: with its host, or of the machine alone, which may be started again."""
    host = workspace.host
    if workspace.error_code != HOST_LOST or host is None:
        return {"restart_at": iso(workspace.restart_due_at)}
    return {"host": host.name, "reason": HOST_LOST, "since": iso(host.state_since)}


def _exit_data(workspace: Workspace) -> dict[str, Any]:
    """Return the data of an exit. `exit_code` is that of the main process, or null; `restart_at` is null if none is
    planned.
    """
    return {
        "reason": workspace.last_exit_reason,
        "exit_code": workspace.last_exit_code,
        "restart_at": iso(workspace.restart_due_at),
    }


def _had_machine(before: Status, operation: Operation | None) -> bool:
    came_from = operation.params.get("from") if operation else None
    return came_from in HAD_MACHINE if came_from else before not in _MAYBE_STOPPED_BEFORE


def _stop_reason(workspace: Workspace, before: Status, operation: Operation | None) -> str:
    """Return `requested`, `memory_lost` (of a sleeping one), `host_down`, or `failed`: as an operation's outcome."""
    if operation is not None:
        return "requested" if operation.kind in STOPS else "failed"
    if before is Status.SLEEPING:
        return "memory_lost"
    return HOST_DOWN if workspace.last_exit_reason == HOST_DOWN else "failed"


def _publish(workspace: Workspace, name: str, data: dict[str, Any]) -> None:
    slug = slugs_of([workspace.namespace_id]).get(workspace.namespace_id, "")
    shown = {"namespace": slug, "workspace_id": workspace.pk, "workspace_name": workspace.name, "kind": workspace.kind}
    publish_events([NewEvent(workspace.account_id, workspace.namespace_id, slug, name, {**shown, **data})])
