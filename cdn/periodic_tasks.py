"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "expire-cdn-permits": run_every(10, "cdn.tasks.expire_permits"),
        "continue-cdn-purges": run_every(10, "cdn.tasks.continue_purges"),
        "continue-cdn-withdrawals": run_every(10, "cdn.tasks.continue_withdrawals"),
        "prune-cdn-rows": run_every(600, "cdn.tasks.prune_rows"),
        "remove-cdn-orphans": run_every(3600, "cdn.tasks.remove_orphans", queue="media"),
        "process-cdn-files": run_every(5, "cdn.tasks.process_due", queue="media"),
        "remove-cdn-ended-parts": run_every(60, "cdn.tasks.remove_ended_parts", queue="media"),
    }
