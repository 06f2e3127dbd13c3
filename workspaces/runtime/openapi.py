"""How the OpenAPI document describes the credential of the runtime."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class RuntimeScheme(OpenApiAuthenticationExtension):
    """The token of a workspace's runtime."""

    target_class = "workspaces.runtime.base.RuntimeAuthentication"
    name = "runtimeToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token of the workspace's runtime."}


_ALIAS = re.compile(r"/r/(\{named_id\}|runtimes/[a-z]+)/")


def leave_out_aliases(endpoints: list[Any]) -> list[Any]:
    """Return the routes without those that are others under a second path (a preprocessing hook)."""
    return [endpoint for endpoint in endpoints if not is_alias(endpoint[0])]


def is_alias(path: str) -> bool:
    """Return whether a route is another one under a second path."""
    return _ALIAS.match(path) is not None
