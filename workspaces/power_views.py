"""Start, stop, restart, pause and resume (specification, Lifecycle and power)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.fields import StrictBoolean
from common.openapi import refused
from common.requests import validated
from workspaces import power
from workspaces.requested import requested_workspace
from workspaces.serializers import GoingOnResponse, WorkspaceResponse
from workspaces.wait_response import NO_CAPACITY, SUSPENDED, UNAVAILABLE, WRONG_STATE, power_response


class StartRequest(serializers.Serializer[Any]):
    force = StrictBoolean(default=False)


RESPONSES = {200: WorkspaceResponse, 202: GoingOnResponse}
POWER_RESPONSES = {**RESPONSES, **refused({409: WRONG_STATE, 503: UNAVAILABLE})}
START_RESPONSES = {**POWER_RESPONSES, **refused({402: NO_CAPACITY, 403: SUSPENDED})}
START_REFUSED = refused({400: "`validation_error`", 409: f"{WRONG_STATE}; `vm_missing`"})


class PowerViewSet(ViewSet):
    """Each call returns when its operation has finished, or 202 when the wait times out.

    Until then reads show the transitional status. One operation at a time: a second one is refused with 409.
    """

    @extend_schema(request=StartRequest, responses={**START_RESPONSES, **START_REFUSED})
    def start(self, request: ApiRequest, workspace_id: str) -> Response:
        """Start a workspace; a paused one is resumed and a sleeping one woken. Idempotent.

        `force` skips the state checks: a failed creation is retried.
        """
        workspace = requested_workspace(request.user, workspace_id)
        force = validated(StartRequest, request)["force"]
        operation = power.workspace_start(workspace=workspace, actor=request.user.label, force=force)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=POWER_RESPONSES)
    def stop(self, request: ApiRequest, workspace_id: str) -> Response:
        """Shut a workspace down; its data is preserved. Idempotent."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = power.workspace_stop(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=START_RESPONSES)
    def restart(self, request: ApiRequest, workspace_id: str) -> Response:
        """Shut a running workspace down and start it; saved settings are applied."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = power.workspace_restart(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=POWER_RESPONSES)
    def pause(self, request: ApiRequest, workspace_id: str) -> Response:
        """Suspend the processes of a running workspace: its memory stays allocated, no CPU is used."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = power.workspace_pause(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)

    @extend_schema(request=None, responses=START_RESPONSES)
    def resume(self, request: ApiRequest, workspace_id: str) -> Response:
        """Resume a paused workspace, or wake a sleeping one. Idempotent."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = power.workspace_resume(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)
