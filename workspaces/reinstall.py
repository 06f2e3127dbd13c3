"""`/workspace/:id/reinstall` (specification, Lifecycle and power): the file system is reset to the image."""

from __future__ import annotations

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.services import account_lock
from common.openapi import Success, refused
from common.responses import respond
from namespaces import selectors as namespaces
from workspaces import quota, selectors
from workspaces.errors import VmMissing
from workspaces.host_away import require_reachable
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.power import (
    begin_operation,
    require_growth_allowed,
    require_no_operation,
    require_start_allowed,
    sizes_of,
)
from workspaces.requested import requested_workspace
from workspaces.rows import lock_and_read
from workspaces.states import HAS_MACHINE, Status
from workspaces.transitions import require_status
from workspaces.wait_response import NO_CAPACITY, SUSPENDED, UNAVAILABLE, WRONG_STATE, wait_until_finished


class ReinstallResponse(Success):
    accepted = s.BooleanField(required=False)
    workspace_id = s.CharField(source="workspace.id")
    reinstalled = s.BooleanField()
    running = s.BooleanField()
    ip = s.CharField(allow_null=True, source="workspace.ip")
    message = s.CharField()


@transaction.atomic
def workspace_reinstall(*, workspace: Workspace, actor: str) -> Operation:
    """Queue the reset of the file system to the image, and a start. Irreversible.

    Raise VmMissing (destroyed, or never created), OperationInProgress, NamespaceSuspended, QuotaExceeded,
    RunningPoolReached, VMUnavailable; nothing has changed then.
    """
    account_lock(workspace.account)
    lock_and_read(workspace)
    require_reachable(workspace)
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


REFUSED = refused(
    {
        402: NO_CAPACITY,
        403: SUSPENDED,
        409: f"`vm_missing`; {WRONG_STATE}",
        502: "`stop_failed`: nothing was reset; `overlay_delete_failed`: nothing was deleted, it was started again; "
        "`relaunch_failed`: reset but not started; `start` completes it",
        503: UNAVAILABLE,
    }
)


class ReinstallViewSet(ViewSet):
    """Reset of the file system of a workspace to its image."""

    @extend_schema(
        request=None,
        responses={200: ReinstallResponse, 202: ReinstallResponse, **REFUSED},
    )
    def reinstall(self, request: ApiRequest, workspace_id: str) -> Response:
        """Reset the whole file system to the image and start it. Irreversible; SSH is disabled.

        Id, address, hostname, image, resources, network policy and metadata are kept; settings saved since the last
        start are applied. With 202 the reset continues.
        """
        workspace = requested_workspace(request.user, workspace_id)
        operation = workspace_reinstall(workspace=workspace, actor=request.user.label)
        ended = wait_until_finished(operation)
        current = selectors.get_workspace(request.user, workspace.pk)
        return respond(
            ReinstallResponse,
            200 if ended else 202,
            accepted=None if ended else True,
            workspace=current,
            reinstalled=ended,
            running=current.status == Status.RUNNING,
            message="The file system was reset to the image." if ended else "The workspace is being reinstalled.",
        )
