"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {}
GROUPS = [
    ApiGroup("Code assistance", "Code by a model. Errors have a form of their own here.", r"/v1/blurs/.*"),
    ApiGroup("Credentials", "", r"/api-keys(/.*)?"),
]
