"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "remove-leaving-hosts": run_every(2, "hosts.tasks.remove_leaving_hosts"),
        "remove-former-credentials": run_every(5, "hosts.tasks.remove_former_credentials"),
        "remove-expired-tokens": run_every(3600, "hosts.tasks.remove_expired_tokens"),
    }
