"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        # Without a deleted namespace it is one query on an empty index.
        "continue-namespace-deletions": {
            "task": "namespaces.tasks.continue_deletions",
            "schedule": 5.0,
            "options": {"expires": 4},
        },
        "prune-namespace-activity": {
            "task": "namespaces.tasks.prune_activity",
            "schedule": 3600.0,
            "options": {"expires": 3000},
        },
    }
