"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "SendTokenStatus": "notifications.models.TokenStatus",
    "DevicePlatform": "notifications.models.DevicePlatform",
    "DeviceProvider": "notifications.models.Provider",
}
GROUPS = [
    ApiGroup("Notifications", "Send tokens, devices, and sending.", r"/notifications(/.*)?"),
]
