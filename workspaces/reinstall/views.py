"""`/workspace/:id/reinstall` (specification, Lifecycle and power)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.responses import respond
from workspaces import selectors
from workspaces.reinstall import serializers, services
from workspaces.requested import requested_workspace
from workspaces.states import Status
from workspaces.wait_response import NO_CAPACITY, SUSPENDED, UNAVAILABLE, WRONG_STATE, wait_until_finished

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
    """Resets the file system of a workspace to its image."""

    @extend_schema(
        request=None,
        responses={200: serializers.ReinstallResponse, 202: serializers.ReinstallResponse, **REFUSED},
    )
    def reinstall(self, request: ApiRequest, workspace_id: str) -> Response:
        """Reset the whole file system to the image and start it. Irreversible; SSH is disabled.

        Id, address, hostname, image, resources, network policy and metadata are kept; settings saved since the last
        start are applied. With 202 the reset continues.
        """
        workspace = requested_workspace(request.user, workspace_id)
        operation = services.workspace_reinstall(workspace=workspace, actor=request.user.label)
        ended = wait_until_finished(operation)
        current = selectors.get_workspace(request.user, workspace.pk)
        return respond(
            serializers.ReinstallResponse,
            200 if ended else 202,
            accepted=None if ended else True,
            workspace=current,
            reinstalled=ended,
            running=current.status == Status.RUNNING,
            message="The file system was reset to the image." if ended else "The workspace is being reinstalled.",
        )
