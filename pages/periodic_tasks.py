"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "continue-deploys": run_every(5, "pages.tasks.continue_deploys"),
        "expire-deploys": run_every(10, "pages.tasks.expire_deploys"),
        "continue-publications": run_every(5, "pages.tasks.continue_publications", queue="pages"),
        "reconcile-page-files": run_every(env.reconcile_seconds, "pages.tasks.reconcile_files", queue="pages"),
        "prune-page-rows": run_every(3600, "pages.tasks.prune_rows"),
    }
