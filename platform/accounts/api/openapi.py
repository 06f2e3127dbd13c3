"""How the OpenAPI document describes the credentials."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class AccountScheme(OpenApiAuthenticationExtension):
    """Client id and secret together, or an access token."""

    target_class = "accounts.authentication.AccountAuthentication"
    name = ["clientId", "clientSecret", "accessToken"]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "apiKey", "in": "header", "name": "X-Client-ID"},
            {"type": "apiKey", "in": "header", "name": "X-Client-Secret"},
            {"type": "http", "scheme": "bearer"},
        ]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[str]]]:
        both: dict[str, list[str]] = {"clientId": [], "clientSecret": []}
        return [both] if getattr(auto_schema.view, "allow_tokens", True) is False else [both, {"accessToken": []}]
