"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "expire-assist-calls": {
            "task": "assist.tasks.calls_expire",
            "schedule": 20.0,
            "options": {"expires": 18},
        },
        "prune-assist-rows": {
            "task": "assist.tasks.rows_prune",
            "schedule": 3600.0,
            "options": {"expires": 3000},
        },
    }
