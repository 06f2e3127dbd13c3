"""How the OpenAPI document describes the credential of the route that sends."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class SendTokenScheme(OpenApiAuthenticationExtension):
    """A send token."""

    target_class = "notifications.authentication.SendTokenAuthentication"
    name = "sendToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A send token of a workspace (`snd_…`)."}
