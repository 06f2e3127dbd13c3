"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any


def schedule(env: Any) -> dict[str, dict[str, Any]]:
    """`env` is `config.env.Env`. A task expires before its next turn, so that an outage leaves no queue of the same."""
    return {
        "reconcile-hosts": {
            "task": "workspaces.tasks.reconcile_hosts",
            "schedule": float(env.reconcile_seconds),
            "options": {"expires": env.reconcile_seconds * 0.9},
        },
        "expire-operations": {
            "task": "workspaces.tasks.expire_operations",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        # Every second: a TTL fires within two seconds of its time. With nothing due it is one indexed query.
        "sweep-due": {
            "task": "workspaces.tasks.sweep_due",
            "schedule": 1.0,
            "options": {"expires": 1},
        },
        "correct-due-times": {
            "task": "workspaces.tasks.correct_due_times",
            "schedule": 60.0,
            "options": {"expires": 50},
        },
        "stop-suspended": {
            "task": "workspaces.tasks.stop_suspended",
            "schedule": 5.0,
            "options": {"expires": 4},
        },
        # A tick is charged at most half a tick after it was written, also where the writer's notification was lost.
        "charge-metered": {
            "task": "workspaces.tasks.charge_metered",
            "schedule": env.metering_seconds / 2,
            "options": {"expires": env.metering_seconds / 2},
        },
        "close-billing-cycles": {
            "task": "workspaces.tasks.close_billing_cycles",
            "schedule": 10.0,
            "options": {"expires": 9},
        },
        # Once a night; the row of the check says whether it was made.
        "check-ledger": {
            "task": "workspaces.tasks.check_ledger",
            "schedule": 600.0,
            "options": {"expires": 500},
        },
        "prune-workspace-activity": {
            "task": "workspaces.tasks.prune_activity",
            "schedule": 3600.0,
            "options": {"expires": 3000},
        },
        # No request depends on it: readers compute what is not rolled up yet.
        "compact-usage": {
            "task": "workspaces.tasks.compact_usage",
            "schedule": 300.0,
            "options": {"expires": 250},
        },
    }
