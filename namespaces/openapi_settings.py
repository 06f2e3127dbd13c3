"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "NamespaceStatus": "namespaces.models.Status",
    "NamespaceType": "namespaces.models.Type",
}
GROUPS = [
    ApiGroup("Namespaces", "Namespaces with their limits, activity and use.", r"/namespaces(/.*)?"),
]
