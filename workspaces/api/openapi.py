"""Routes that are no DRF views, for the OpenAPI document alone."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.viewsets import ViewSet

FILES_PATH = "/workspace/{workspace_id}/overlay/files"
PATH = OpenApiParameter("path", str, required=True, description="Absolute path inside the workspace.")
RAW = (OpenApiTypes.BINARY, "application/octet-stream")


class FileContent(serializers.Serializer):
    success = serializers.BooleanField(default=True)
    path = serializers.CharField()
    encoding = serializers.ChoiceField(["base64"])
    content = serializers.CharField()
    size = serializers.IntegerField()


class FileWrite(serializers.Serializer):
    path = serializers.CharField()
    content = serializers.CharField(help_text="Base64, of at most 64 MiB decoded.")


class FileWritten(serializers.Serializer):
    success = serializers.BooleanField(default=True)
    path = serializers.CharField()
    size = serializers.IntegerField()


class FileDocumentation(ViewSet):
    """Describes `workspaces.files.views.overlay_files`; serves nothing."""

    @extend_schema(
        parameters=[PATH, OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={
            200: FileContent,
            206: OpenApiResponse(OpenApiTypes.BINARY, description="A range of the raw bytes."),
        },
    )
    def read(self, request: Any, workspace_id: str) -> None:
        """One file, streamed: base64 in JSON, or its raw bytes with `Accept: application/octet-stream` (and Range)."""

    @extend_schema(
        parameters=[OpenApiParameter("path", str, description="With a raw body only.")],
        request={"application/json": FileWrite, "application/octet-stream": OpenApiTypes.BINARY},
        responses=FileWritten,
    )
    def write(self, request: Any, workspace_id: str) -> None:
        """Write one file beside and rename it; parents are made. Readers see the old file or the whole new one."""


def add_files(endpoints: list[Any], **kwargs: Any) -> list[Any]:
    """Preprocessing hook."""
    view = FileDocumentation.as_view({"get": "read", "post": "write"})
    pattern = r"^workspace/(?P<workspace_id>[^/]+)/overlay/files$"
    return [*endpoints, (FILES_PATH, pattern, "GET", view), (FILES_PATH, pattern, "POST", view)]
