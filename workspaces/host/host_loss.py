"""Losses of a host that staff gave up: a transaction for each workspace, so whatever dies in between, the next sweep
goes on with those that are left.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from django.db.models import Q

from vmbackend.host_states import HostState
from vmbackend.models import Host
from workspaces import warm_machines
from workspaces.audit import record_activity
from workspaces.crud.services import remove_workspace_row
from workspaces.host.steps.create import mark_failed
from workspaces.host_away import is_lost_with_host
from workspaces.models import Operation, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import LIVE, OperationState
from workspaces.moves.rows import move_end
from workspaces.operations import queue
from workspaces.rows import find_and_lock, update_row
from workspaces.snapshot_rows import fail_snapshot_of
from workspaces.states import CREATING, HOST_LOST, Status
from workspaces.transitions import transition

logger = logging.getLogger(__name__)

BATCH = 200
# Nothing of these is on a host.
OWNS_NO_MACHINE = (Status.FAILED, Status.DESTROYED)


def lose_members(host: Host) -> int:
    """Write a batch of the workspaces of a host that was given up as lost. Return how many."""
    if retired := warm_machines.retire_machines(host.pk):
        logger.warning("%d machines of the pool are lost with host %s", retired, host.name)
    left = Workspace.objects.filter(host=host).exclude(status__in=OWNS_NO_MACHINE).exclude(_written())
    lost = sum(_lose(key) for key in list(left.order_by().values_list("pk", flat=True)[:BATCH]))
    if lost:
        logger.warning("%d workspaces are lost with host %s", lost, host.name)
    return lost


def _written() -> Q:
    return Q(status=Status.LOST, error_code=HOST_LOST)


@transaction.atomic
def _lose(workspace_id: str) -> bool:
    """Write that a workspace is lost; one that was being deleted is deleted. Return False if it has changed since."""
    workspace = find_and_lock(workspace_id, "host", "account", "namespace")
    host = workspace.host if workspace else None
    if workspace is None or host is None or host.state != HostState.GONE:
        return False
    if workspace.status in OWNS_NO_MACHINE or is_lost_with_host(workspace):
        return False
    message = f"The host {host.name} was given up, and what was on it is lost."
    for operation in Operation.objects.filter(workspace=workspace, state__in=LIVE):
        _end_operation(operation, message)
    if workspace.status == Status.DELETING:
        remove_workspace_row(workspace)
    elif workspace.status in CREATING:
        mark_failed(workspace, HOST_LOST, message)
    else:
        _write_lost(workspace, message)
    return True


def _end_operation(operation: Operation, message: str) -> None:
    owned = queue.take_over_operation(operation)
    if owned is not None:
        queue.finish_operation(owned, OperationState.FAILED, code=HOST_LOST, message=message)
        fail_snapshot_of(owned, HOST_LOST, message)
        move_end(owned, MoveState.FAILED, HOST_LOST, message)


def _write_lost(workspace: Workspace, message: str) -> None:
    """Write the loss. The epoch is raised: should the host come back, its machine is a former copy, which nobody takes
    up.
    """
    lost: dict[str, Any] = {
        "epoch": workspace.epoch + 1,
        "error_code": HOST_LOST,
        "error_message": message,
        "started_at": None,
        "restart_due_at": None,
        "idle_due_at": None,
        "memory_expires_at": None,
    }
    if workspace.status == Status.LOST:
        update_row(workspace, **lost)
    else:
        transition(workspace, Status.LOST, **lost)
    record_activity(workspace, HOST_LOST, message)
