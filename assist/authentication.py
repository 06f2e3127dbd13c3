"""Authentication by API keys: `Authorization: Bearer key_...`, and nothing else that a request carries."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from assist.errors import InvalidApiKey
from assist.models import ApiKey
from assist.selectors import key_of_secret
from assist.services import PREFIX
from common.caller_places import remember_account
from common.wrong_secrets import count_wrong_secret


def require_key(request: HttpRequest) -> ApiKey:
    """Return the key with its account and plan. Raise InvalidApiKey, TooManyFailures."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    is_key = scheme.lower() == "bearer" and secret.startswith(PREFIX)
    found = key_of_secret(secret) if is_key else None
    if found is None:
        if secret:
            count_wrong_secret(request)
        raise InvalidApiKey(headers={"WWW-Authenticate": 'Bearer realm="v1"'})
    remember_account(request, found.account_id)
    return found


class ApiKeyAuthentication(BaseAuthentication):
    """Authentication in the OpenAPI document only: the views read the key themselves, in the thread that also reads the
    rest.
    """

    def authenticate(self, request: Request) -> None:
        return None


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "assist.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key (`POST /api-keys`)."}
