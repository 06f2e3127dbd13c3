"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {"SandboxStatus": "sandboxes.states.SandboxStatus"}
_S = r"/s/\{sandbox_id\}"
GROUPS = [
    ApiGroup("Sandboxes", "Sandboxes, with the credentials of their account.", r"/sandbox(/.*)?"),
    ApiGroup("Sandbox: files", "With the token of the sandbox; also at the sandbox's own address.", rf"{_S}/files/.*"),
    ApiGroup(
        "Sandbox: search", "With the token of the sandbox; also at the sandbox's own address.", rf"{_S}/search(/.*)?"
    ),
    ApiGroup("Sandbox: git", "With the token of the sandbox; also at the sandbox's own address.", rf"{_S}/git/.*"),
    ApiGroup(
        "Sandbox: terminal", "With the token of the sandbox; also at the sandbox's own address.", rf"{_S}/terminal"
    ),
]
