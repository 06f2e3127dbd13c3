"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "expire-cdn-permits": {
            "task": "cdn.tasks.expire_permits",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        "continue-cdn-purges": {
            "task": "cdn.tasks.continue_purges",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        "continue-cdn-withdrawals": {
            "task": "cdn.tasks.continue_withdrawals",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        "prune-cdn-rows": {
            "task": "cdn.tasks.prune_rows",
            "schedule": 600.0,
            "options": {"expires": 500},
        },
        "remove-cdn-orphans": {
            "task": "cdn.tasks.remove_orphans",
            "schedule": 3600.0,
            "options": {"expires": 3000, "queue": "media"},
        },
        "process-cdn-files": {
            "task": "cdn.tasks.process_due",
            "schedule": 5.0,
            "options": {"expires": 4, "queue": "media"},
        },
        "remove-cdn-ended-parts": {
            "task": "cdn.tasks.remove_ended_parts",
            "schedule": 60.0,
            "options": {"expires": 50, "queue": "media"},
        },
    }
