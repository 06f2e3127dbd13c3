"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {}
GROUPS = [
    ApiGroup(
        "Hosts",
        "Machines of the platform, for staff, and how machines join.",
        r"/(staff/hosts(/.*)?|staff/workspaces/.*|join/(hosts|ca))",
    )
]
