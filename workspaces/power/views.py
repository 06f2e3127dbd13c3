"""Start, stop, restart, pause and resume (specification, Lifecycle and power)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.requests import validated
from workspaces.power import serializers, services
from workspaces.requested import requested_workspace
from workspaces.serializers import GoingOnResponse, WorkspaceResponse
from workspaces.wait_response import NO_ROOM, OUT_OF_TURN, SUSPENDED, UNAVAILABLE, power_response

POWERED = {200: WorkspaceResponse, 202: GoingOnResponse}
MOVED = {**POWERED, **refused({409: OUT_OF_TURN, 503: UNAVAILABLE})}
LAUNCHED = {**MOVED, **refused({402: NO_ROOM, 403: SUSPENDED})}
START_REFUSED = refused({400: "`validation_error`", 409: f"{OUT_OF_TURN}; `vm_missing`"})


class PowerViewSet(ViewSet):
    """Each call returns when its operation has finished; 202 where that takes longer than the deadline of a wait.

    Meanwhile reads show the transitional status. One operation at a time: a second one is 409.
    """

    @extend_schema(request=serializers.StartRequest, responses={**LAUNCHED, **START_REFUSED})
    def start(self, request: ApiRequest, workspace_id: str) -> Response:
        """Start a workspace; a paused one is resumed and a sleeping one woken. One that runs is left as it is.

        `force` skips the state checks: a creation that failed is tried again.
        """
        workspace = requested_workspace(request.user, workspace_id)
        force = validated(serializers.StartRequest, request)["force"]
        operation = services.workspace_start(workspace=workspace, actor=request.user.label, force=force)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=MOVED)
    def stop(self, request: ApiRequest, workspace_id: str) -> Response:
        """Shut a workspace down; its data is preserved. One that is stopped is left as it is."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_stop(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=LAUNCHED)
    def restart(self, request: ApiRequest, workspace_id: str) -> Response:
        """Shut a running workspace down and start it; what was saved for the next start is applied."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_restart(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=MOVED)
    def pause(self, request: ApiRequest, workspace_id: str) -> Response:
        """Suspend the processes of a running workspace: its memory is kept, no CPU is used."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_pause(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=LAUNCHED)
    def resume(self, request: ApiRequest, workspace_id: str) -> Response:
        """Let a paused workspace go on, or wake a sleeping one. One that runs is left as it is."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_resume(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)
