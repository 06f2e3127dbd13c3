"""`/workspace/:id/metadata` (specification, Metadata): any JSON values by key, set by the owner."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.errors import ValidationError
from common.fields import JSONObject
from common.json_objects import is_deeper
from common.openapi import Success, refused
from common.requests import validated
from common.responses import respond
from workspaces import rows
from workspaces.models import Workspace
from workspaces.requested import requested_workspace


class MetadataRequest(serializers.Serializer[Any]):
    """Top-level keys to overwrite or add; a null is stored as a value."""

    metadata = JSONObject()


class MetadataResponse(Success):
    metadata = JSONObject()


MAX_BYTES = 64 * 1024
# Far above real use, far below the recursion limits of JSON parsers and serializers.
MAX_DEPTH = 100


@transaction.atomic
def metadata_merge(*, workspace: Workspace, changes: dict[str, Any]) -> dict[str, Any]:
    """Overwrite and add top-level keys; a null is stored. Return the whole object.

    The row is locked until the commit, so that concurrent merges are all applied. Raise ValidationError (nested too
    deeply, or more than 64 KiB as compact JSON), NotFound (deleted concurrently). Nothing has changed then.
    """
    require_shallow(changes)
    merged = {**rows.lock_column(workspace, "metadata"), **changes}
    require_small(merged)
    rows.update_row(workspace, metadata=merged, updated_at=timezone.now())
    return merged


def require_shallow(value: Any) -> None:
    """Raise ValidationError if the object is nested too deeply."""
    if is_deeper(value, MAX_DEPTH):
        raise ValidationError(details={"metadata": [f"At most {MAX_DEPTH} levels of nesting."]})


def require_small(metadata: dict[str, Any]) -> None:
    """Raise ValidationError if the object is too large."""
    size = len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_BYTES:
        raise ValidationError(details={"metadata": [f"At most {MAX_BYTES} bytes as JSON; it would be {size}."]})


CHANGED = {
    200: MetadataResponse,
    **refused(
        {400: "`validation_error`: not an object, nested deeper than 100 levels, or more than 64 KiB after the merge"}
    ),
}


class MetadataViewSet(ViewSet):
    """Any JSON values by key. A reinstall keeps them."""

    @extend_schema(responses=MetadataResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the whole object."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return Response(MetadataResponse(workspace).data)

    @extend_schema(request=MetadataRequest, responses=CHANGED)
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Overwrite the given keys, add new ones, leave the others. A key set to null is stored as null.

        PUT and PATCH are equivalent. Concurrent requests do not lose each other's keys.
        """
        workspace = requested_workspace(request.user, workspace_id)
        changes = validated(MetadataRequest, request)["metadata"]
        merged = metadata_merge(workspace=workspace, changes=changes)
        return respond(MetadataResponse, metadata=merged)
