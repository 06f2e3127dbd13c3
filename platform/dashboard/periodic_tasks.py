"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn."""
    return {
        "take-summary": {
            "task": "dashboard.tasks.take_summary",
            "schedule": 300.0,
            "options": {"expires": 290},
        },
    }
