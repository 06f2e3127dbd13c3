"""Views of `/cdn/uploads/:token`: the bytes of a file (wire contract, section 9; tus 1.0, core and expiration)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from cdn.errors import UploadEnded, UploadUnknown
from cdn.serializers import CdnFileResponse
from cdn.services.uploads import UploadStatus, upload_status
from cdn.states import FileStatus
from cdn.uploads import protocol
from cdn.uploads.outcome import outcome_of
from cdn.uploads.receiving import receive_body
from cdn.uploads.refusals import refusal_of
from common.async_threads import in_pool_thread, run_to_end
from common.async_views import AsyncViewSet, ShortResponse
from common.body_rules import RAW, UNLIMITED, BodyRule
from common.errors import MethodNotAllowed
from common.openapi import refused
from common.streaming_body import body_chunks
from common.wrong_secrets import count_wrong_secret

REFUSALS = {
    400: "`invalid_json`: the body ended early, the received bytes are kept; `validation_error`: the body is empty or "
    "only a part of the file (Content-Range)",
    404: "`not_found`: the address is unknown, was used, or its time is over",
    408: "`request_timeout`: the body stalled for 60 seconds; the received bytes are kept",
    409: "`conflict`: another request sends this file",
    412: "`precondition_failed`: the version of tus is not supported",
    413: "`payload_too_large`: more bytes came than the permit is for",
    415: "`unsupported_media_type`: the body has a Content-Encoding",
    429: "`rate_limited`: this account sends too many files at once, or this client tries too many unknown addresses",
    503: "`VM_UNAVAILABLE`: the bytes cannot be stored at the moment; the received bytes are kept",
}
OUTCOMES = {
    400: f"{REFUSALS[400]}; `cdn_policy_violation`: the content is not allowed (`details.rule`, `limit`, `actual`)",
    402: "`cdn_quota_exceeded`: there is no room any more",
}
PART_REFUSALS = {
    409: "`conflict`: the upload continues at another offset (`details.offset`), or another request sends this file",
    415: f"`unsupported_media_type`: the body is not {protocol.PART_TYPE}, or has a Content-Encoding",
}
TUS = OpenApiParameter("Tus-Resumable", str, OpenApiParameter.HEADER, description="`1.0.0`; may be left out.")
OFFSET = OpenApiParameter(
    protocol.OFFSET, int, OpenApiParameter.HEADER, required=True, description="Offset of the part, from HEAD."
)
EXPLANATION = {
    protocol.OFFSET: "Number of bytes that have arrived.",
    "Upload-Length": "Number of bytes that the permit is for; for a complete file, its size.",
    "Upload-Expires": "Time until which bytes are received.",
}
SHOWN = [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, response=True, description=text)
    for name, text in EXPLANATION.items()
]


ACTIONS = {
    "put": "send_file",
    "patch": "send_part",
    "head": "show_status",
    "options": "describe",
    "post": "override",
}


class UploadViewSet(AsyncViewSet):
    """Uploads by address. Public: the address carries the permit, and needs no other credential."""

    authentication_classes = []
    permission_classes = []
    body_rule = BodyRule(streamed_bytes=lambda: UNLIMITED)  # each permit has a size

    async def dispatch(  # type: ignore[override]  # a coroutine in place of a response
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        response = await super().dispatch(request, *args, **kwargs)
        for name, value in protocol.HEADERS.items():
            response[name] = value
        return response

    async def begin(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check version and address. Only the address identifies the caller.

        Raise TusVersionUnsupported, UploadUnknown, TooManyFailures.
        """
        if request.method != "OPTIONS":
            protocol.require_version(self.http_request.headers)
            async with self._unknown_counted():
                protocol.checked_token(kwargs["token"])

    @extend_schema(
        operation_id="cdn_upload_file",
        request={RAW: OpenApiTypes.BINARY},
        responses={
            201: CdnFileResponse,
            202: OpenApiResponse(CdnFileResponse, description="All bytes have arrived; processing continues."),
            **refused(REFUSALS | OUTCOMES),
        },
        auth=[],
    )
    async def send_file(self, request: Request, token: str) -> HttpResponseBase:
        """Send the whole file, with or without Content-Length. The type is found from the bytes, not from Content-Type.

        A body that ends properly is the whole file, even if it is smaller than the permit. If a body breaks off, the
        received bytes are kept: `HEAD` says how many, `PATCH` continues, another `PUT` begins again. A client that has
        not received this response asks by `HEAD` whether all bytes have arrived. Only one request at a time may send a
        file.
        """
        protocol.require_whole(self.http_request.headers)
        received = await self._received(token, offset=None)
        file = await outcome_of(received.file_id, settings.ENV.cdn_upload_wait_seconds)
        if file.status == FileStatus.REJECTED:
            raise refusal_of(file)
        is_unfinished = file.status == FileStatus.PROCESSING
        body: Serializer[Any] = CdnFileResponse({"file": file})
        data = await in_pool_thread(lambda: body.data)
        return ShortResponse({"success": True, **data}, status=202 if is_unfinished else 201)

    @extend_schema(
        operation_id="cdn_upload_part",
        parameters=[TUS, OFFSET, *SHOWN[:1], *SHOWN[2:]],
        request={protocol.PART_TYPE: OpenApiTypes.BINARY},
        responses={
            204: OpenApiResponse(
                description="The part is stored. With the last byte of the permit the file is complete."
            ),
            **refused(REFUSALS | PART_REFUSALS),
        },
        auth=[],
    )
    async def send_part(self, request: Request, token: str) -> HttpResponseBase:
        """Send a part of the file, from `Upload-Offset` on (tus 1.0). The last part completes the file; its status
        shows the outcome.
        """
        received = await self._received(token, offset=protocol.part_offset(self.http_request))
        return HttpResponse(status=204, headers=protocol.status_headers(received))

    @extend_schema(operation_id="cdn_upload_status", parameters=[TUS, *SHOWN], responses={200: None}, auth=[])
    async def show_status(self, request: Request, token: str) -> HttpResponseBase:
        """Show how many bytes have arrived (tus 1.0). If `Upload-Offset` equals `Upload-Length` the file is
        complete.
        """
        async with self._unknown_counted():
            return HttpResponse(headers=protocol.status_headers(await in_pool_thread(upload_status, token)))

    @extend_schema(exclude=True)
    async def describe(self, request: Request, token: str) -> HttpResponseBase:
        """Describe what the server can do (tus 1.0), also for requests that browsers send first."""
        return HttpResponse(status=204, headers=protocol.DESCRIPTION)

    @extend_schema(exclude=True)
    async def override(self, request: Request, token: str) -> HttpResponseBase:
        """Carry out the method that X-HTTP-Method-Override names (tus 1.0), for clients that cannot send it."""
        actions = {"PATCH": self.send_part, "PUT": self.send_file, "HEAD": self.show_status}
        named = actions.get(self.http_request.headers.get("X-HTTP-Method-Override", "").upper())
        if named is None:
            raise MethodNotAllowed(headers={"Allow": protocol.DESCRIPTION["Allow"]})
        return await named(request, token)

    async def _received(self, token: str, *, offset: int | None) -> UploadStatus:
        """Receive the body to its end, whatever happens to the request: received bytes are not lost with the client."""
        protocol.require_plain(self.http_request.headers)
        body, length = body_chunks(self.http_request), protocol.body_length(self.http_request)
        async with self._unknown_counted():
            return await run_to_end(receive_body(body, token, length=length, offset=offset))

    @asynccontextmanager
    async def _unknown_counted(self) -> AsyncIterator[None]:
        """Count an unknown address for its client within the context. Raise TooManyFailures in its place."""
        try:
            yield
        except UploadEnded:
            raise
        except UploadUnknown:
            await in_pool_thread(count_wrong_secret, self.http_request)
            raise
