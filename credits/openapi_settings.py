"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "CreditService": "credits.models.Service",
    "OverdraftAction": "credits.models.OverdraftAction",
}
GROUPS = [
    ApiGroup("Credit quotas", "Quotas of namespaces by service, and defaults.", r"/credits(/.*)?"),
]
