"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "continue-domain-names": {
            "task": "domains.tasks.continue_names",
            "schedule": 5.0,
            "options": {"expires": 4},
        },
        "reconcile-domain-names": {
            "task": "domains.tasks.reconcile_names",
            "schedule": float(env.reconcile_seconds),
            "options": {"expires": env.reconcile_seconds * 0.9},
        },
    }
