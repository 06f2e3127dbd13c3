"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "end-overdue-sends": {
            "task": "notifications.tasks.overdue_sends_end",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        # As many as the busiest minute of several tokens.
        "prune-notification-rows": {
            "task": "notifications.tasks.prune_rows",
            "schedule": 60.0,
            "options": {"expires": 50},
        },
    }
