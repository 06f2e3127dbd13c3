"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        # If no namespace is deleted, this is one query on an empty index.
        "continue-namespace-deletions": run_every(5, "namespaces.tasks.continue_deletions"),
    }
