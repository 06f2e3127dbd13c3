"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "expire-assist-calls": run_every(20, "assist.tasks.expire_calls"),
        "prune-assist-rows": run_every(3600, "assist.tasks.prune_rows"),
    }
