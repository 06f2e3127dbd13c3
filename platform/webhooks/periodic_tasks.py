"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "end-too-long-waits-of-webhooks": run_every(60, "webhooks.tasks.end_too_long_waits"),
        # A batch each time; its secrets went with the request.
        "remove-deleted-webhooks": run_every(30, "webhooks.tasks.deleted_subscriptions_remove"),
        "settle-switched-off-webhooks": run_every(30, "webhooks.tasks.settle_switched_off"),
        "delete-unused-receivers": run_every(60, "webhooks.tasks.delete_unused_receivers"),
        "remove-old-events": run_every(600, "webhooks.tasks.remove_old_events"),
    }
