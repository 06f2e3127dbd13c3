"""`/workspace/:id/metadata` (specification, Metadata)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.requests import validated
from common.responses import respond
from workspaces.metadata import serializers, services
from workspaces.requested import requested_workspace

CHANGED = {
    200: serializers.MetadataResponse,
    **refused(
        {400: "`validation_error`: not an object, nested deeper than 100 levels, or more than 64 KiB after the merge"}
    ),
}


class MetadataViewSet(ViewSet):
    """Any JSON values by key. A reinstall keeps them."""

    @extend_schema(responses=serializers.MetadataResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """The whole object."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return Response(serializers.MetadataResponse(workspace).data)

    @extend_schema(request=serializers.MetadataRequest, responses=CHANGED)
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Overwrite the given keys, add new ones, leave the others. A key set to null is stored as null.

        PUT and PATCH are equivalent. Concurrent requests do not lose each other's keys.
        """
        workspace = requested_workspace(request.user, workspace_id)
        changes = validated(serializers.MetadataRequest, request)["metadata"]
        merged = services.metadata_merge(workspace=workspace, changes=changes)
        return respond(serializers.MetadataResponse, metadata=merged)
