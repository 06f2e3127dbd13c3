"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "continue-deploys": {
            "task": "pages.tasks.continue_deploys",
            "schedule": 5.0,
            "options": {"expires": 4},
        },
        "expire-deploys": {
            "task": "pages.tasks.expire_deploys",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        "continue-publications": {
            "task": "pages.tasks.continue_publications",
            "schedule": 5.0,
            "options": {"expires": 4, "queue": "pages"},
        },
        "reconcile-page-files": {
            "task": "pages.tasks.reconcile_files",
            "schedule": float(env.reconcile_seconds),
            "options": {"expires": env.reconcile_seconds * 0.9, "queue": "pages"},
        },
        "prune-page-rows": {
            "task": "pages.tasks.prune_rows",
            "schedule": 3600.0,
            "options": {"expires": 3000},
        },
    }
