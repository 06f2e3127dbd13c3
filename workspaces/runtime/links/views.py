"""`{url}/files/links`, and the files that links lead to (wire contract, section 4b)."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from common.async_threads import in_request_thread
from common.async_views import AsyncViewSet
from common.body_rules import RAW, BodyRule, takes_body
from common.errors import MethodNotAllowed
from common.openapi import refused
from common.responses import respond
from workspaces.data_plane.guest import OpenGuest, open_guest
from workspaces.data_plane.holders import wrong_tokens_counted
from workspaces.data_plane.json_bodies import read_body
from workspaces.files.content import read_raw_file, write_raw_file
from workspaces.runtime.access import runtime_url
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet, admit_holder
from workspaces.runtime.grants import grant_of
from workspaces.runtime.links.serializers import READ, FileLinkRequest, FileLinkResponse, LinkedFileResponse
from workspaces.runtime.links.signed import FileLink, decode_link, encode_link
from workspaces.runtime.tokens import RuntimeHolder, holder_in_epoch

ENDED = "`unauthorized`: the link is unknown or has expired"
REPLACED = "`forbidden`: the tokens were rotated since, the runtime is off, or the link is another workspace's"
COMMON = {401: ENDED, 403: REPLACED, 405: "`method_not_allowed`: the link is for the other method"}


class FileLinksViewSet(RuntimeViewSet):
    """Links to files."""

    @extend_schema(request=FileLinkRequest, responses={200: FileLinkResponse, **refused({400: "`validation_error`"})})
    async def create(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return an address that reads one file, or replaces it, without another credential.

        It ends by itself, and with all tokens when they are rotated. The file is looked for when the address is used.
        """
        data = await read_body(FileLinkRequest, request)
        ends = int(timezone.now().timestamp()) + data.pop("ttl_seconds")
        link = FileLink(self.workspace.pk, self.workspace.runtime_epoch, **data, ends=ends)
        url = f"{runtime_url(self.workspace)}/files/linked/{encode_link(link)}"
        return respond(FileLinkResponse, url=url, expires_at=link.expires_at)


class LinkedFileViewSet(AsyncViewSet):
    """The file that a link leads to. Public: the address carries the right."""

    authentication_classes = []
    permission_classes = []
    link: FileLink
    holder: RuntimeHolder

    async def begin(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Admit whoever has the link. Raise Unauthorized, Forbidden, MethodNotAllowed and what refuses a holder."""
        await in_request_thread(self._admit, kwargs["file_link"], kwargs.get("named_id", ""))

    @extend_schema(
        operation_id="r_files_linked_read",
        responses={
            (200, RAW): OpenApiTypes.BINARY,
            (206, RAW): OpenApiTypes.BINARY,
            **refused({**COMMON, 404: "`path_not_found`", 409: "`vm_not_running`", 416: "`range_not_satisfiable`"}),
        },
        auth=[],
    )
    async def read(self, request: Request, file_link: str, named_id: str = "") -> HttpResponseBase:
        """Return the bytes of the file, or a range of them."""
        guest = await self._guest()
        response = await read_raw_file(self.http_request, guest.address, guest.grant, self.link.path)
        # Whatever it is, it is nothing that a browser shows at this address.
        response["Content-Disposition"] = "attachment"
        return response

    @extend_schema(
        operation_id="r_files_linked_replace",
        request={RAW: OpenApiTypes.BINARY},
        responses={
            200: LinkedFileResponse,
            **refused(
                {
                    **COMMON,
                    400: "`path_invalid`; `invalid_json`: the body ended early, nothing has changed",
                    408: "`request_timeout`: the body stalled for 60 seconds",
                    409: "`guest_disk_full`; `vm_not_running`",
                    413: "`payload_too_large`: above `max_bytes` of the link, or 16 GiB",
                }
            ),
        },
        auth=[],
    )
    @takes_body(BodyRule(streamed_bytes=lambda: settings.FILE_STREAM_LIMIT))
    async def replace(self, request: Request, file_link: str, named_id: str = "") -> Response:
        """Replace the file by the body, of any media type: readers see the old one or the whole new one."""
        guest = await self._guest()
        size = await write_raw_file(
            self.http_request, guest.address, guest.grant, self.link.path, most=self.link.max_bytes
        )
        return respond(LinkedFileResponse, size=size)

    async def _guest(self) -> OpenGuest:
        guest = await open_guest(self.holder.workspace, grant_of(self.holder.workspace))
        await guest.record_use()
        return guest

    def _admit(self, text: str, named_id: str) -> None:
        with wrong_tokens_counted(self.http_request):
            self.link = decode_link(text)
            self.holder = holder_in_epoch(self.link.workspace_id, self.link.epoch, named_id)
        admit_holder(self.holder, self.http_request)
        asked = READ if self.http_request.method == "HEAD" else self.http_request.method
        if asked != self.link.method:
            raise MethodNotAllowed
