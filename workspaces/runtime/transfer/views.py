"""`{url}/files/transfer/...` (wire contract, section 4b)."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema

from common.openapi import refused
from common.parsers import UnstoredObjectParser
from common.watched_bodies import granted_chunks
from vmbackend.guest.archives import archive_paths
from workspaces.data_plane.json_bodies import read_body
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.transfer.serializers import RuntimeDownloadRequest

GZIP = "application/gzip"
PIECE_SECONDS = 600.0


class RuntimeTransfersViewSet(RuntimeViewSet):
    """Archives of many files at once."""

    parser_classes = [UnstoredObjectParser]

    @extend_schema(
        request=RuntimeDownloadRequest,
        responses={
            (200, GZIP): OpenApiTypes.BINARY,
            **refused(
                {
                    400: "`validation_error`: a field, which is named",
                    404: "`path_not_found`: one of the paths",
                    409: "`vm_not_running`",
                }
            ),
        },
    )
    async def download(self, request: RuntimeRequest, named_id: str = "") -> HttpResponseBase:
        """A tar.gz of the paths with all that is below them, while the machine makes it; names are relative to `/`.

        Symbolic links are not followed, other file systems are not entered, and sockets are left out. If a file goes
        or shrinks meanwhile, or the token ends, the response breaks off.
        """
        data = await read_body(RuntimeDownloadRequest, request)
        guest = await self.guest()
        opened = await guest.open_file(
            lambda session: archive_paths(session, data["paths"], data["exclude_patterns"]), PIECE_SECONDS
        )
        response = StreamingHttpResponse(granted_chunks(opened, self.grant), content_type=GZIP)
        response["Content-Disposition"] = 'attachment; filename="files.tar.gz"'
        response["X-Content-Type-Options"] = "nosniff"
        return response
