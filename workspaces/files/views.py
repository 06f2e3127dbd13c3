"""`/workspace/:id/overlay`: directories, their disk, and files (`content.py` streams their bytes)."""

from __future__ import annotations

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response

from accounts.authentication import ApiRequest
from common.async_threads import in_render_thread, in_request_thread, run_to_end
from common.async_views import AsyncViewSet
from common.body_rules import RAW, takes_body
from common.openapi import MessageResponse, refused
from common.requests import validated_query
from common.responses import ok
from common.watched_bodies import BodyGrant
from vmbackend.guest.session import GuestAddress
from workspaces.files.content import WRITTEN_FILES, read_file, write_file
from workspaces.files.paths import displayed_path, query_path
from workspaces.files.serializers import (
    LIST_LIMIT,
    FileContent,
    FileWrite,
    FileWritten,
    ListingQuery,
    ListingResponse,
    UsageResponse,
    cursor_after,
)
from workspaces.grants import body_grant
from workspaces.guests import address_of, call_guest
from workspaces.models.workspace import Kind
from workspaces.requested import requested_workspace

LIST_SECONDS = 60.0  # a large directory of a slow guest
CALL_SECONDS = 30.0
SYNC_SECONDS = 75.0  # the guest itself is given 60

PATH_TEXT = (
    "Absolute path inside the workspace; `..` and symbolic links are resolved there. Percent-encoded bytes may be "
    "anything, not only UTF-8."
)
CONDITIONS = [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, description=f"For raw bytes. {about}")
    for name, about in (
        ("Range", "One range; a request for several gets the whole file."),
        (
            "If-Range",
            "An `ETag` or `Last-Modified` of an earlier response; if the file changed, all of it is sent.",
        ),
        ("If-None-Match", "304 if the file has not changed."),
    )
]

RUNNING = {409: "`vm_not_running`"}
PLACES = {
    400: "`path_invalid`: the path is not a directory",
    404: "`path_not_found`: also a loop of symbolic links",
    **RUNNING,
}


class FilesViewSet(AsyncViewSet):
    """Directories and the disk they are on."""

    @extend_schema(
        parameters=[
            OpenApiParameter("path", str, description="Absolute; default `/`. Any bytes, percent-encoded."),
            OpenApiParameter("limit", int, description=f"Entries at most, 1 to {LIST_LIMIT}, which is the default."),
            OpenApiParameter("cursor", str, description="`next_cursor` of the previous response."),
        ],
        responses={200: ListingResponse, **refused(PLACES)},
    )
    async def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """List a directory's entries by name, at most `limit` of them; of entries with long paths about 4 MiB.

        If there are more, `truncated` is true, and the same request with `cursor` set to `next_cursor` continues after
        the last name. Entries that are created or removed between the two requests are included or not, depending on
        their names. A name that is not UTF-8 has replacement characters in `name` and `path`, and the true path,
        percent-encoded, in `encoded_path`.
        """
        path = query_path(self.http_request, default="/")
        query = validated_query(ListingQuery, request)
        limit, after = query["limit"], query["cursor"]
        address = await in_request_thread(guest_address, request, workspace_id)
        entries, more = await call_guest(
            address, lambda session: session.list_directory(path, limit=limit, after=after), LIST_SECONDS
        )
        listing = {
            "path": displayed_path(path),
            "count": len(entries),
            "entries": entries,
            "truncated": more,
            "next_cursor": cursor_after(entries[-1].name) if more and entries else None,
        }
        return Response(await in_render_thread(lambda: ListingResponse(listing).data))

    @extend_schema(responses={200: UsageResponse, **refused(RUNNING)})
    async def usage(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the use of the writable disk, which holds all changes since the image. The image itself takes none of
        it.

        The guest reports it; it is never more than the disk's size.
        """
        address, size = await in_request_thread(address_and_disk_size, request, workspace_id)
        reported = await call_guest(address, lambda session: session.disk_usage(), CALL_SECONDS)
        return Response(UsageResponse(reported.limited_to(size)).data)

    @extend_schema(request=None, responses={200: MessageResponse, **refused(RUNNING)})
    async def sync(self, request: ApiRequest, workspace_id: str) -> Response:
        """Flush the guest's unwritten data to its disk. Responds when it is written."""
        address = await in_request_thread(guest_address, request, workspace_id)
        await run_to_end(call_guest(address, lambda session: session.sync(), SYNC_SECONDS))
        return ok(message="The file system is written to the disk.")


class FileContentViewSet(AsyncViewSet):
    """The bytes of one file, streamed both ways."""

    @extend_schema(
        parameters=[OpenApiParameter("path", str, required=True, description=PATH_TEXT), *CONDITIONS],
        responses={
            200: FileContent,
            (200, RAW): OpenApiTypes.BINARY,
            (206, RAW): OpenApiResponse(OpenApiTypes.BINARY, description="A range of the raw bytes."),
            304: OpenApiResponse(description="The file has not changed."),
            **refused(
                {
                    400: "`path_invalid`: a directory, a device, a pipe or a socket",
                    404: "`path_not_found`: also a loop of symbolic links",
                    **RUNNING,
                    413: "`payload_too_large`: a file above 64 MiB, requested as JSON",
                    412: "`precondition_failed`: for raw bytes only",
                    416: "`range_not_satisfiable`",
                }
            ),
        },
    )
    async def read(self, request: ApiRequest, workspace_id: str) -> HttpResponseBase:
        """Return one file, streamed: base64 in JSON up to 64 MiB, or with `Accept: application/octet-stream` its raw
        bytes, whose header `X-File-Mode` has its permission bits in octal.

        A file that grows during the transfer ends at its announced size. If the file shrinks or the credential ends,
        the response breaks off. Virtual files of the kernel (`/proc`, `/sys`) are read at once, have no length, ranges
        or tags, and at most 16 MiB.
        """
        address, grant = await in_request_thread(address_and_grant, request, workspace_id)
        return await read_file(self.http_request, address, grant)

    @extend_schema(
        parameters=[
            OpenApiParameter("path", str, description=f"With a raw body only. {PATH_TEXT}"),
            OpenApiParameter(
                "mode",
                str,
                description="With a raw body only: permission bits in octal, as 0600. A new file gets them; one "
                "that is replaced keeps those of its own that are among them. Without it a new file gets 0644.",
            ),
        ],
        request={"application/json": FileWrite, RAW: OpenApiTypes.BINARY},
        responses={
            200: FileWritten,
            **refused(
                {
                    400: "`path_invalid`: a directory, not a regular file, a read-only place, a broken link",
                    408: "`request_timeout`: the raw body stalled for 60 seconds",
                    409: "`guest_disk_full`, `vm_not_running`",
                    413: "`payload_too_large`: above 64 MiB as JSON, above 16 GiB as raw bytes",
                }
            ),
        },
    )
    @takes_body(WRITTEN_FILES)
    async def write(self, request: ApiRequest, workspace_id: str) -> HttpResponseBase:
        """Write one file: to a temporary file beside it, then renamed. Readers see the old file or the whole new one.

        Raw bytes are streamed into the workspace; JSON is written once it is received completely. Missing parent
        directories are created. An existing file keeps its mode and owner, its other hard links keep the old content,
        and through a symbolic link its target is written. Any failure, also during the transfer, leaves the old file
        unchanged and no temporary file; so does the end of the credential (401).
        """
        address, grant, is_edited = await in_request_thread(address_and_edits, request, workspace_id)
        return await write_file(self.http_request, address, grant, is_edited=is_edited)


def address_and_disk_size(request: ApiRequest, workspace_id: str) -> tuple[GuestAddress, int]:
    """Return the guest's address and the bytes of its disk. Raise NotFound, VmNotRunning."""
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    return address_of(workspace), workspace.applied_disk_size_mb << 20


def address_and_grant(request: ApiRequest, workspace_id: str) -> tuple[GuestAddress, BodyGrant]:
    """Return the guest's address, and the grant with whose end a body ends. Raise NotFound, VmNotRunning."""
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    return address_of(workspace), body_grant(request.user, workspace)


def address_and_edits(request: ApiRequest, workspace_id: str) -> tuple[GuestAddress, BodyGrant, bool]:
    """Return what `address_and_grant` returns, and whether the guest's files are also edited."""
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    return address_of(workspace), body_grant(request.user, workspace), workspace.kind == Kind.SANDBOX


def guest_address(request: ApiRequest, workspace_id: str) -> GuestAddress:
    """Return the guest's address. Raise NotFound, VmNotRunning."""
    return address_of(requested_workspace(request.user, workspace_id, whole=True))
