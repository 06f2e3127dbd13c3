"""`/workspace/:id/resources` and `/overlay/resize` (specification, Resources, Filesystem)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.requests import body_of, validated
from common.responses import respond
from workspaces import errors, selectors
from workspaces.requested import requested_workspace
from workspaces.resources import serializers, services
from workspaces.states import Status
from workspaces.wait_response import wait_until_finished

REFUSED = {
    402: "`POOL_LIMIT_REACHED`; `RUNNING_POOL_REACHED`, only with `apply`",
    403: "`RESOURCE_NOT_ALLOWED`: above the plan",
    503: "`VM_UNAVAILABLE`: the host does not respond, or the resize failed (`details.reason`) and nothing was changed",
}


class ResourcesViewSet(ViewSet):
    """CPUs, memory and disk."""

    @extend_schema(responses=serializers.ResourcesResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the saved sizes; `pending` lists those that apply at the next start."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return respond(serializers.ResourcesResponse, resources=workspace)

    @extend_schema(
        request=serializers.ResourcesRequest,
        responses={
            200: serializers.ResourcesUpdated,
            202: serializers.ResourcesUpdated,
            **refused(
                {
                    **REFUSED,
                    400: "`no_resources`; `invalid_resources`: wrong type, out of range, or a disk that would shrink",
                    409: "`NAMESPACE_LIMIT_REACHED`; `vm_missing`; `operation_in_progress`",
                }
            ),
        },
    )
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Save sizes for the next start; with `apply` a running workspace is relaunched with them.

        `relaunched` is false when the workspace was not running: the sizes are saved then. With 202 the relaunch
        continues.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes, apply = serializers.wanted(body_of(request))
        operation = services.resources_update(
            workspace=workspace, actor=request.user.label, changes=changes, apply=apply
        )
        ended = operation is None or wait_until_finished(operation)
        updated, body = selectors.get_workspace(request.user, workspace.pk), serializers.ResourcesUpdated
        if not ended:
            return respond(body, 202, accepted=True, updated=updated, relaunched=False)
        return respond(body, updated=updated, relaunched=operation is not None)

    @extend_schema(
        request=serializers.OverlayResizeRequest,
        responses={
            200: serializers.OverlayResized,
            202: serializers.OverlayResized,
            **refused(
                {
                    **REFUSED,
                    400: "`validation_error`; `invalid_resources`: the disk would shrink",
                    409: "`NAMESPACE_LIMIT_REACHED`; `invalid_state`; `operation_in_progress`; `vm_missing`",
                }
            ),
        },
    )
    def resize_overlay(self, request: ApiRequest, workspace_id: str) -> Response:
        """Grow the writable disk now: a running workspace is stopped, resized and relaunched."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        size = validated(serializers.OverlayResizeRequest, request)["size_mb"]
        try:
            operation = services.overlay_resize(workspace=workspace, actor=request.user.label, size_mb=size)
        except errors.InvalidResources as exc:
            raise errors.InvalidResources(details={"size_mb": (exc.details or {}).get("disk_size_mb", [])}) from exc
        body = serializers.OverlayResized
        if operation is None:
            running = workspace.status == Status.RUNNING
            return respond(body, size_mb=size, wasRunning=running, relaunched=False)
        was_running = operation.params["was_running"]
        if not wait_until_finished(operation):
            return respond(body, 202, accepted=True, size_mb=size, wasRunning=was_running, relaunched=False)
        return respond(body, size_mb=size, wasRunning=was_running, relaunched=was_running)
