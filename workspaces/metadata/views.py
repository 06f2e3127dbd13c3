"""`/workspace/:id/metadata` (specification, Metadata)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.requests import validated
from common.responses import ok
from workspaces import selectors
from workspaces.api.schemas import refused
from workspaces.metadata import requests, schemas, services

CHANGED = {
    200: schemas.MetadataResponse,
    **refused({400: "`validation_error`: no object, nested deeper than 100 levels, or more than 64 KiB in the end"}),
}


class MetadataViewSet(ViewSet):
    """Any JSON values by key. They outlive a reinstall."""

    @extend_schema(responses=schemas.MetadataResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """The whole object."""
        return ok(metadata=selectors.get(request.user, workspace_id, whole=True).metadata)

    @extend_schema(request=requests.MetadataRequest, responses=CHANGED)
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Overwrite the given keys, add new ones, leave the others. A key set to null is stored as null.

        PUT and PATCH do the same. Two at once never lose each other's keys.
        """
        workspace = selectors.get(request.user, workspace_id)
        changes = validated(requests.MetadataRequest, request)["metadata"]
        return ok(metadata=services.metadata_merge(workspace=workspace, changes=changes))
