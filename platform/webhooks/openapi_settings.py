"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "WebhookDeliveryStatus": "webhooks.models.DeliveryStatus",
    "WebhookDisabledReason": "webhooks.models.DisabledReason",
}
GROUPS = [
    ApiGroup("Webhooks", "Addresses that events are sent to.", r"/webhooks(/.*)?"),
]
