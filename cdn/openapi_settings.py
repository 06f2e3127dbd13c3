"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "CdnFileStatus": "cdn.states.FileStatus",
    "CdnKind": "cdn.states.Kind",
}
GROUPS = [
    ApiGroup("CDN", "Files that are delivered, their quotas and policies.", r"/cdn(/.*)?"),
]
