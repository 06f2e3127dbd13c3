"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "PageStatus": "pages.states.PageStatus",
    "DeploymentState": "pages.states.DeploymentState",
}
GROUPS = [
    ApiGroup("Pages", "Static sites, their releases and domains.", r"/pages(/.*)?|/domain/check-slug"),
]
