"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "expire-holds": {
            "task": "credits.tasks.expire_holds",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        # Nothing waits unless a balance is full: one query on an empty table.
        "charge-waiting": {
            "task": "credits.tasks.charge_waiting",
            "schedule": 60.0,
            "options": {"expires": 50},
        },
    }
