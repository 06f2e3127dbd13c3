"""Deletion: accepted from every state; it cancels or follows what is in flight."""

from __future__ import annotations

from django.db import transaction

from accounts.services import workspace_gone
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.operations import queue
from workspaces.services.activity import record
from workspaces.states import ANY, CREATING, ProvisioningPhase, Status, transition
from workspaces.usage import services as usage


def forget(workspace: Workspace) -> None:
    """Remove the row, in the caller's transaction; nothing of the machine is left by then."""
    usage.forget(workspace)
    workspace.delete()
    workspace_gone(workspace.account_id)


@transaction.atomic
def workspace_delete(*, workspace: Workspace, actor: str) -> tuple[Operation | None, bool]:
    """Queue the removal of the machine and its row. Returns the operation and whether a creation was in flight.

    A second delete joins the first. None: there was no host to ask, and the row is gone already.
    """
    workspace = Workspace.objects.select_for_update(of=("self",)).select_related("host").get(pk=workspace.pk)
    creating = workspace.status in CREATING
    pending = queue.live(workspace, OperationKind.DELETE)
    if pending is not None:
        return pending, workspace.provisioning_phase == ProvisioningPhase.DELETING
    queue.cancel(workspace)
    if workspace.host is None:
        forget(workspace)
        return None, False
    fields = {"provisioning_phase": ProvisioningPhase.DELETING} if creating else {}
    transition(workspace, Status.DELETING, leaving=ANY, **fields)
    record(workspace, "delete_requested", actor=actor)
    return queue.enqueue(workspace, OperationKind.DELETE, actor=actor), creating
