"""Routes that are no DRF views, for the OpenAPI document alone."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.viewsets import ViewSet

from common.openapi import refused

FILES_PATH = "/workspace/{workspace_id}/overlay/files"
ADDRESS = (
    "Absolute path inside the workspace; `..` and symbolic links are resolved there. Percent-encoded bytes that are no "
    "UTF-8 name what they are the bytes of."
)
PATH = OpenApiParameter("path", str, required=True, description=ADDRESS)
CONDITIONS = [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, description=f"Of raw bytes. {about}")
    for name, about in (
        ("Range", "One range; several are answered with the whole file."),
        (
            "If-Range",
            "An `ETag` or `Last-Modified` of an earlier answer; where the file is another by now, all is sent.",
        ),
        ("If-None-Match", "304 where the file is still this."),
    )
]
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
    """Describes `workspaces.files.content.overlay_files`; serves nothing."""

    @extend_schema(
        parameters=[PATH, *CONDITIONS],
        responses={
            200: FileContent,
            206: OpenApiResponse(OpenApiTypes.BINARY, description="A range of the raw bytes."),
            **refused(
                {
                    400: "`path_invalid`: a directory, a device, a pipe or a socket",
                    404: "`path_not_found`: also a loop of symbolic links",
                    413: "`payload_too_large`: a file above 64 MiB, asked for as JSON",
                    416: "`range_not_satisfiable`",
                }
            ),
        },
    )
    def read(self, request: Any, workspace_id: str) -> None:
        """One file, streamed: base64 in JSON up to 64 MiB, or with `Accept: application/octet-stream` its raw bytes.

        A file that grows meanwhile ends where it was announced to; one that shrinks cuts the answer off. What the
        kernel makes up (`/proc`, `/sys`) is read at once, has no length, ranges or tags, and at most 16 MiB.
        """

    @extend_schema(
        parameters=[OpenApiParameter("path", str, description=f"With a raw body only. {ADDRESS}")],
        request={"application/json": FileWrite, "application/octet-stream": OpenApiTypes.BINARY},
        responses={
            200: FileWritten,
            **refused(
                {
                    400: "`path_invalid`: a directory, no regular file, a read-only place, a link that leads nowhere",
                    408: "`request_timeout`: the raw body stopped coming for 60 seconds",
                    409: "`guest_disk_full`, `vm_not_running`",
                    413: "`payload_too_large`: above 64 MiB as JSON, above 16 GiB as raw bytes",
                }
            ),
        },
    )
    def write(self, request: Any, workspace_id: str) -> None:
        """Write one file: beside its place, then renamed. Readers see the old file or the whole new one.

        Raw bytes flow into the workspace as they come, JSON when all of it is here. Parents are made. An old file's
        mode and owner are kept, its other hard links keep the old content, and through a symbolic link its target is
        written. Whatever goes wrong, also on the way, leaves the old file as it was and nothing beside it.
        """


def add_files(endpoints: list[Any], **kwargs: Any) -> list[Any]:
    """Preprocessing hook."""
    view = FileDocumentation.as_view({"get": "read", "post": "write"})
    pattern = r"^workspace/(?P<workspace_id>[^/]+)/overlay/files$"
    return [*endpoints, (FILES_PATH, pattern, "GET", view), (FILES_PATH, pattern, "POST", view)]
