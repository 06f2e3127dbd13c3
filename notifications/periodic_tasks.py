"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "end-overdue-sends": run_every(10, "notifications.tasks.end_overdue_sends"),
        # As many as the busiest minute of several tokens.
        "prune-notification-rows": run_every(60, "notifications.tasks.prune_rows"),
    }
