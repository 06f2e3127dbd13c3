"""How the OpenAPI document describes the credential of the sandbox level."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class SandboxScheme(OpenApiAuthenticationExtension):
    """The token of the sandbox in the path."""

    target_class = "sandboxes.level.base.SandboxAuthentication"
    name = "sandboxToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "The sandbox's token."}
