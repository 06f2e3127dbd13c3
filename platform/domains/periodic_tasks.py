"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "continue-domain-names": run_every(5, "domains.tasks.continue_names"),
        "reconcile-domain-names": run_every(env.reconcile_seconds, "domains.tasks.reconcile_names"),
    }
