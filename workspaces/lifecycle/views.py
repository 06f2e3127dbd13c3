"""`/workspace/:id/lifecycle` and `/ping` (specification, Lifecycle and power)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import MessageResponse, refused
from common.requests import validated
from common.responses import respond
from workspaces.lifecycle import serializers, services
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.serializers import GoingOnResponse, WorkspaceResponse
from workspaces.wait_response import UNAVAILABLE, WRONG_STATE, power_response, stored_response, wait_until_finished

INVALID = {400: "`validation_error`"}
CHANGED = {200: serializers.LifecycleResponse, 202: serializers.LifecycleResponse}
IDLE_CHANGED = {200: serializers.IdleResponse, 202: serializers.IdleResponse}


class LifecycleViewSet(ViewSet):
    """Lifetime and idle policy of a workspace. Changes take effect immediately; while its host is away, the response is
    202.
    """

    @extend_schema(responses=serializers.LifecycleResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return mode, TTL, restart policy with its history, idle policy, and whether its memory can be saved
        to disk.
        """
        return lifecycle_response(requested_workspace(request.user, workspace_id, whole=True))

    @extend_schema(
        request=serializers.IdleRequest,
        responses={**IDLE_CHANGED, **refused({**INVALID, 409: "`idle_not_supported`"})},
    )
    def idle(self, request: ApiRequest, workspace_id: str) -> Response:
        """Sleep after `suspend_after` without use; drop the memory after `stop_after` of sleep. 0 disables either.

        The normalized policy is in `idle`, as in the lifecycle, and at the top level.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.IdleRequest, request)
        changed = services.set_idle(workspace=workspace, actor=request.user.label, **data)
        return stored_response(workspace, Response(serializers.IdleResponse(changed).data))

    @extend_schema(request=serializers.PermanentRequest, responses={**CHANGED, **refused({**INVALID})})
    def permanent(self, request: ApiRequest, workspace_id: str) -> Response:
        """Make it permanent: the TTL is cleared and the restart policy applies. Return the lifecycle."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.PermanentRequest, request)
        changed = services.make_permanent(workspace=workspace, actor=request.user.label, **data)
        return stored_response(workspace, lifecycle_response(changed))

    @extend_schema(request=serializers.TemporaryRequest, responses={**CHANGED, **refused({**INVALID})})
    def temporary(self, request: ApiRequest, workspace_id: str) -> Response:
        """Make it temporary: the TTL starts now; no restarts, no idle policy. Return the lifecycle."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.TemporaryRequest, request)
        changed = services.make_temporary(workspace=workspace, actor=request.user.label, **data)
        return stored_response(workspace, lifecycle_response(changed))

    @extend_schema(
        request=serializers.TtlRequest,
        responses={
            **CHANGED,
            **refused({**INVALID, 409: "`invalid_state`: the workspace is permanent"}),
        },
    )
    def ttl(self, request: ApiRequest, workspace_id: str) -> Response:
        """Change the TTL or its action of a temporary workspace; a new TTL starts now. Return the lifecycle."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.TtlRequest, request)
        changed = services.change_ttl(workspace=workspace, actor=request.user.label, **data)
        return stored_response(workspace, lifecycle_response(changed))

    @extend_schema(
        request=serializers.PingRequest,
        responses={
            200: serializers.PingResponse,
            **refused({**INVALID, 409: "`invalid_state`: the workspace is permanent, or has no TTL to renew"}),
        },
    )
    def ping(self, request: ApiRequest, workspace_id: str) -> Response:
        """Renew the TTL of a temporary workspace: from now by its own length, or once by `ttl_seconds`."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        seconds = validated(serializers.PingRequest, request).get("ttl_seconds")
        renewed = services.workspace_ping(workspace=workspace, actor=request.user.label, ttl=seconds)
        return Response(serializers.PingResponse(renewed).data)

    @extend_schema(
        request=None,
        responses={
            200: MessageResponse,
            202: MessageResponse,
            **refused({409: "`operation_in_progress`", 503: "`VM_UNAVAILABLE`"}),
        },
    )
    def destroy(self, request: ApiRequest, workspace_id: str) -> Response:
        """Remove the virtual machine and its disk; the record stays, `destroyed`. Idempotent."""
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_destroy(workspace=workspace, actor=request.user.label)
        if operation is None or wait_until_finished(operation):
            message = "The virtual machine was destroyed; the record stays until it is deleted."
            return respond(MessageResponse, message=message)
        return respond(MessageResponse, 202, accepted=True, message="The virtual machine is being destroyed.")

    @extend_schema(
        request=None,
        responses={
            200: WorkspaceResponse,
            202: GoingOnResponse,
            **refused({409: f"{WRONG_STATE}; `idle_not_supported`", 503: UNAVAILABLE}),
        },
    )
    def sleep(self, request: ApiRequest, workspace_id: str) -> Response:
        """Put a running workspace to sleep at once: its memory is saved to disk and freed.

        Resume and start wake it, and so do requests to its public ports.
        """
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_sleep_at_once(workspace=workspace, actor=request.user.label)
        return power_response(request, workspace, operation)


def lifecycle_response(row: Workspace) -> Response:
    return Response(serializers.LifecycleResponse(row).data)
