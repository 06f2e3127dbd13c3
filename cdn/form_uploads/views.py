"""Views of `/cdn/api`: uploads by token (wire contract, section 9). From outside these are below `/api` of the CDN's
host.
"""

from __future__ import annotations

from django.conf import settings
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from cdn import upload_serializers as bodies
from cdn.form_uploads.authentication import UploadRequest, UploadTokenAuthentication, UploadTokenPermission
from cdn.form_uploads.form import FormFile
from cdn.form_uploads.receiving import receive_form
from cdn.models import File
from cdn.policy import effective_policy, pool_limits
from cdn.serializers import CdnFileObject
from cdn.states import FileStatus
from cdn.uploads import protocol
from cdn.uploads.outcome import outcome_of
from cdn.uploads.refusals import refusal_of
from common.async_threads import in_pool_thread, run_to_end
from common.async_views import AsyncViewSet, ShortResponse
from common.body_rules import UNLIMITED, BodyRule
from common.openapi import refused
from common.responses import respond
from common.streaming_body import body_chunks

REFUSALS = {
    400: "`validation_error`: the body is not a form, has no file or two, or more than 64 KiB before or after it; "
    "`invalid_json`: the body ended early, nothing is kept; `cdn_policy_violation`: kind, size or content is not "
    "allowed (`details`)",
    402: "`cdn_quota_exceeded`: no room (`details`); `quota_exceeded`: the credits of the service `cdn` are used up",
    404: "`not_found`: the file was deleted while it was sent",
    408: "`request_timeout`: the body stalled for 60 seconds, or the first 64 KiB of the file took more than 30 s",
    413: "`payload_too_large`: more bytes came than the body's length says",
    429: "`rate_limited`: this account sends too many files at once, or this client tries too many wrong tokens",
}


class FormUploadViewSet(AsyncViewSet):
    """Uploads with a token of `POST /cdn/token`, which names the namespace of the files."""

    authentication_classes = [UploadTokenAuthentication]
    permission_classes = [UploadTokenPermission]
    body_rule = BodyRule(streamed_bytes=lambda: UNLIMITED)  # the policy of the file's namespace limits the size

    @extend_schema(
        operation_id="cdn_upload_form",
        request={"multipart/form-data": bodies.CdnFormRequest},
        responses={
            201: bodies.CdnFormResponse,
            202: OpenApiResponse(bodies.CdnFormResponse, description="All bytes have arrived; processing continues."),
            **refused(REFUSALS),
        },
    )
    async def send(self, request: UploadRequest) -> HttpResponseBase:
        """Upload one file: the field `file` of a form. The rules of all uploads apply.

        Below `apiUrl` this is `POST /`. The token is valid until it expires, for any number of files; an upload that
        has begun goes on, unless the token's credential ends. With a Content-Length the file has room before it is
        sent; without one it gets room in steps as it comes, and is cut off where there is no more. Other fields are not
        used. Folders in the file's name are left out. An upload that breaks off is not kept.
        """
        sent = self.http_request
        protocol.require_plain(sent.headers)
        form = FormFile(body_chunks(sent), sent.headers.get("Content-Type", ""), protocol.body_length(sent))
        file_id = await run_to_end(receive_form(form, request.user))
        file = await outcome_of(file_id, settings.ENV.cdn_upload_wait_seconds)
        if file.status == FileStatus.REJECTED:
            raise refusal_of(file)
        data = await in_pool_thread(_shown, file)
        return ShortResponse(data, status=202 if file.status == FileStatus.PROCESSING else 201)


class FormLimitsViewSet(ViewSet):
    """Limits of uploads with a token."""

    authentication_classes = [UploadTokenAuthentication]
    permission_classes = [UploadTokenPermission]

    @extend_schema(operation_id="cdn_upload_limits", responses=bodies.CdnFormLimitsResponse)
    def limits(self, request: UploadRequest) -> Response:
        """Return the limits for the token's files; null if there is no limit. Below `apiUrl` this is `GET /limits`."""
        policy = effective_policy(request.user.account, request.user.terms.namespace)
        return respond(
            bodies.CdnFormLimitsResponse,
            limits=policy.values["maxFileBytes"] or {},
            totalLimit=pool_limits(policy.values).max_bytes[1],
            maxFiles=policy.values["maxFiles"],
        )


def _shown(file: File) -> dict[str, object]:
    return dict(bodies.CdnFormResponse({"success": True, "recorded": True, **_facts(file)}).data)


def _facts(file: File) -> dict[str, object]:
    shown = CdnFileObject(file).data
    names = {"file_id": "id", "url": "url", "filename": "filename", "size": "size", "mime": "content_type"}
    return {name: shown[source] for name, source in names.items()} | {"variants": list(file.variants.all())}
