"""Start, stop, restart, pause, resume and reinstall (specification, Lifecycle and power)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.requests import validated
from common.responses import ok
from workspaces import selectors
from workspaces.api import requests, schemas
from workspaces.api.answers import finished, has_ended
from workspaces.services import power, rebuild
from workspaces.states import Status

OUT_OF_TURN = "`invalid_state` with `details.status`; `operation_in_progress`"
UNAVAILABLE = "`VM_UNAVAILABLE`: the host is silent, or the operation failed (`details.reason`)"
SUSPENDED = "`namespace_suspended`"
NO_ROOM = "`RUNNING_POOL_REACHED`; `quota_exceeded`"
POWERED = {200: schemas.WorkspaceResponse, 202: schemas.GoingOnResponse}
MOVED = {**POWERED, **schemas.refused({409: OUT_OF_TURN, 503: UNAVAILABLE})}
LAUNCHED = {**MOVED, **schemas.refused({402: NO_ROOM, 403: SUSPENDED})}
START_REFUSED = schemas.refused({400: "`validation_error`", 409: f"{OUT_OF_TURN}; `vm_missing`"})
REINSTALL_REFUSED = schemas.refused(
    {
        402: NO_ROOM,
        403: SUSPENDED,
        409: f"`vm_missing`; {OUT_OF_TURN}",
        502: "`stop_failed`: nothing was reset; `overlay_delete_failed`: nothing was deleted, it was started again; "
        "`relaunch_failed`: reset but not started, start finishes it",
        503: UNAVAILABLE,
    }
)


class PowerViewSet(ViewSet):
    """Each call returns when its operation has finished; 202 where that takes longer than the deadline of a wait.

    Meanwhile reads show the transitional status. One operation at a time: a second one is 409.
    """

    @extend_schema(request=requests.StartRequest, responses={**LAUNCHED, **START_REFUSED})
    def start(self, request: ApiRequest, workspace_id: str) -> Response:
        """Start a workspace; a paused one is resumed and a sleeping one woken. One that runs is left as it is.

        `force` skips the state checks: a creation that failed is tried again.
        """
        workspace = selectors.get(request.user, workspace_id)
        force = validated(requests.StartRequest, request)["force"]
        operation = power.workspace_start(workspace=workspace, actor=request.user.label, force=force)
        return finished(request, workspace, operation)

    @extend_schema(request=None, responses=MOVED)
    def stop(self, request: ApiRequest, workspace_id: str) -> Response:
        """Shut a workspace down; its data is preserved. One that is stopped is left as it is."""
        workspace = selectors.get(request.user, workspace_id)
        operation = power.workspace_stop(workspace=workspace, actor=request.user.label)
        return finished(request, workspace, operation)

    @extend_schema(request=None, responses=LAUNCHED)
    def restart(self, request: ApiRequest, workspace_id: str) -> Response:
        """Shut a running workspace down and start it; what was saved for the next start is applied."""
        workspace = selectors.get(request.user, workspace_id)
        operation = power.workspace_restart(workspace=workspace, actor=request.user.label)
        return finished(request, workspace, operation)

    @extend_schema(request=None, responses=MOVED)
    def pause(self, request: ApiRequest, workspace_id: str) -> Response:
        """Suspend the processes of a running workspace: its memory is kept, no CPU is used."""
        workspace = selectors.get(request.user, workspace_id)
        operation = power.workspace_pause(workspace=workspace, actor=request.user.label)
        return finished(request, workspace, operation)

    @extend_schema(request=None, responses=LAUNCHED)
    def resume(self, request: ApiRequest, workspace_id: str) -> Response:
        """Let a paused workspace go on, or wake a sleeping one. One that runs is left as it is."""
        workspace = selectors.get(request.user, workspace_id)
        operation = power.workspace_resume(workspace=workspace, actor=request.user.label)
        return finished(request, workspace, operation)

    @extend_schema(
        request=None,
        responses={200: schemas.ReinstallResponse, 202: schemas.ReinstallResponse, **REINSTALL_REFUSED},
    )
    def reinstall(self, request: ApiRequest, workspace_id: str) -> Response:
        """Reset the whole file system to the image and start it. Irreversible; SSH is switched off.

        Id, address, hostname, image, resources, network policy and metadata are kept; settings saved since the last
        start are applied. With 202 the reset goes on.
        """
        workspace = selectors.get(request.user, workspace_id)
        operation = rebuild.workspace_reinstall(workspace=workspace, actor=request.user.label)
        ended = has_ended(operation)
        row = selectors.get(request.user, workspace.pk)
        body = {
            "workspace_id": row.pk,
            "reinstalled": ended,
            "running": row.status == Status.RUNNING,
            "ip": row.ip,
        }
        if not ended:
            return ok(202, accepted=True, **body, message="The workspace is being reinstalled.")
        return ok(**body, message="The file system was reset to the image.")
