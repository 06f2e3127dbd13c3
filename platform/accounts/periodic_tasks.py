"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "forget-idempotency-keys": {
            "task": "accounts.tasks.forget_idempotency_keys",
            "schedule": 3600.0,
            "options": {"expires": 3000},
        },
        "forget-expired-sessions": {
            "task": "accounts.tasks.forget_expired_sessions",
            "schedule": 3600.0,
            "options": {"expires": 3000},
        },
    }
