"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "process-cdn-files": {
            "task": "cdn.tasks.process_due",
            "schedule": 5.0,
            "options": {"expires": 4, "queue": "media"},
        },
        "remove-cdn-leftovers": {
            "task": "cdn.tasks.remove_leftovers",
            "schedule": 60.0,
            "options": {"expires": 50, "queue": "media"},
        },
    }
