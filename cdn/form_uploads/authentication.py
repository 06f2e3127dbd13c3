"""Who uploads: the bearer of an upload token, and nothing else that a request carries."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from cdn.upload_tokens import UploadHolder, UploadTokenForged, upload_token_holder
from common.caller_places import remember_account
from common.errors import Unauthorized
from common.wrong_secrets import count_wrong_secret

UNKNOWN = "The upload token is missing, unknown or expired; ask for another one at POST /cdn/token."


class UploadTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer` with what `POST /cdn/token` returned."""

    def authenticate(self, request: Request) -> tuple[UploadHolder, None] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        holder = _holder(request, token.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            return None
        remember_account(request._request, holder.account.pk)
        return holder, None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="cdn"'


def _holder(request: Request, token: str) -> UploadHolder | None:
    """A token that has ended was right once, and is not counted. Raises TooManyFailures."""
    try:
        return upload_token_holder(token)
    except UploadTokenForged:
        if token:
            count_wrong_secret(request._request)
        return None


class UploadTokenPermission(BasePermission):
    """Raises Unauthorized for a request without a holder."""

    def has_permission(self, request: Request, view: object) -> bool:
        if not isinstance(request.user, UploadHolder):
            raise Unauthorized(UNKNOWN)
        return True


class UploadRequest(Request):
    """For annotations: a request that passed UploadTokenPermission."""

    user: UploadHolder  # type: ignore[assignment]


class UploadTokenScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document describes an upload token."""

    target_class = "cdn.form_uploads.authentication.UploadTokenAuthentication"
    name = "uploadToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An upload token of the CDN, for a minute."}
