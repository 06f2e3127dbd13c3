"""Authentication of uploads: by an upload token, and by nothing else that a request carries."""

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

UNKNOWN = "The upload token is missing, unknown or expired. Request a new one with POST /cdn/token."


class UploadTokenAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer` with a token of `POST /cdn/token`."""

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
    """Return who holds a token. A token that has ended was right once, and is not counted. Raise TooManyFailures."""
    try:
        return upload_token_holder(token)
    except UploadTokenForged:
        if token:
            count_wrong_secret(request._request)
        return None


class UploadTokenPermission(BasePermission):
    """Permission for requests with a holder; other requests raise Unauthorized."""

    def has_permission(self, request: Request, view: object) -> bool:
        if not isinstance(request.user, UploadHolder):
            raise Unauthorized(UNKNOWN)
        return True


class UploadRequest(Request):
    """Request that passed UploadTokenPermission, for annotations."""

    user: UploadHolder  # type: ignore[assignment]


class UploadTokenScheme(OpenApiAuthenticationExtension):
    """Description of an upload token in the OpenAPI document."""

    target_class = "cdn.form_uploads.authentication.UploadTokenAuthentication"
    name = "uploadToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An upload token of the CDN, valid for one minute."}
