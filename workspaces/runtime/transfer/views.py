"""`{url}/files/transfer/...` (wire contract, section 4b)."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.async_threads import run_to_end
from common.body_rules import RAW, BodyRule, takes_body
from common.openapi import refused
from common.parsers import UnstoredObjectParser
from common.responses import respond
from common.streaming_body import body_chunks
from common.watched_bodies import granted_body, granted_chunks
from vmbackend.guest.archives import archive_paths
from vmbackend.guest.session import DiskUsage, GuestSession
from workspaces.commands.capacity import command_place
from workspaces.data_plane.fields import path_fields
from workspaces.data_plane.json_bodies import read_body
from workspaces.files.content import CALL_SECONDS, limited_body
from workspaces.guests import push_guest
from workspaces.last_used import TransferUse
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.files.services import folder_ensure
from workspaces.runtime.query_fields import read_query
from workspaces.runtime.transfer.serializers import RuntimeDownloadRequest, RuntimeUploadQuery, RuntimeUploadResponse
from workspaces.runtime.transfer.services import archive_unpack, sifted
from workspaces.runtime.transfer.sifting import Sifter

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

    @extend_schema(
        parameters=[RuntimeUploadQuery],
        request={RAW: OpenApiTypes.BINARY},
        responses={
            200: RuntimeUploadResponse,
            **refused(
                {
                    400: "`archive_invalid`; `validation_error`: `dest`; `path_invalid`: it is no directory",
                    404: "`path_not_found`: `dest` is a link without a target",
                    408: "`request_timeout`: the body stalled for 60 seconds",
                    409: "`guest_disk_full`; `vm_not_running`",
                    413: "`payload_too_large`: above 16 GiB",
                    429: "`rate_limited`: too many commands of this account run; an upload counts as one",
                }
            ),
        },
    )
    @takes_body(BodyRule(streamed_bytes=lambda: settings.FILE_STREAM_LIMIT))
    async def upload(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Unpack a tar.gz, of any media type, in a directory while it is received.

        Files belong to root, and replace those that exist.

        Left out are absolute names and those with `..`, links that lead out of the directory, what lies behind a link
        of the archive, and devices. The first entry that fails ends it, also one that the disk has no room for;
        `details.files_extracted` says how many files are there then. A file that does not come whole is removed. An
        archive has at most 1,000,000 entries, 100,000 of them symbolic links, no sparse files, and becomes at most
        1,000 times as large after the first 64 MiB.
        """
        dest = read_query(RuntimeUploadQuery, self.http_request)["dest"]
        guest = await self.guest()
        received = limited_body(body_chunks(self.http_request), TransferUse(guest.address.machine_id))

        async def unpack() -> Sifter:
            with command_place(guest.account_id):
                usage = await guest.call(lambda session: _prepared(session, dest), CALL_SECONDS)
                sifter = Sifter(usage.limited_to(guest.disk_bytes).available_bytes)
                work = partial(archive_unpack, dest=dest, sifter=sifter)
                async with granted_body(received, self.grant) as body:
                    await push_guest(guest.address, work, sifted(body, sifter))
            return sifter

        # If the client leaves or the token ends, the body ends: what has come whole is kept, the rest is put in order.
        sifter = await run_to_end(unpack())
        fields = {"files_extracted": sifter.files, "skipped": sifter.skipped}
        return respond(RuntimeUploadResponse, **path_fields(dest, "dest"), **fields)


async def _prepared(session: GuestSession, dest: str) -> DiskUsage:
    await folder_ensure(session, path=dest)
    return await session.disk_usage()
