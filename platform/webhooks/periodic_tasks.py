"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        # A batch each time; its secrets went with the request.
        "remove-deleted-webhooks": {
            "task": "webhooks.tasks.deleted_subscriptions_remove",
            "schedule": 30.0,
            "options": {"expires": 25},
        },
        "settle-switched-off-webhooks": {
            "task": "webhooks.tasks.switched_off_settle",
            "schedule": 30.0,
            "options": {"expires": 25},
        },
        "delete-unused-receivers": {
            "task": "webhooks.tasks.unused_receivers_delete",
            "schedule": 60.0,
            "options": {"expires": 50},
        },
        "remove-old-events": {
            "task": "webhooks.tasks.old_events_remove",
            "schedule": 600.0,
            "options": {"expires": 500},
        },
    }
