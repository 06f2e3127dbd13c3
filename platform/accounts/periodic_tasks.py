"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "forget-idempotency-keys": run_every(3600, "accounts.tasks.forget_idempotency_keys"),
        "prune-audit-logs": run_every(3600, "accounts.tasks.prune_audit_logs"),
        "forget-expired-sessions": run_every(3600, "accounts.tasks.forget_expired_sessions"),
    }
