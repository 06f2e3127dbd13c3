"""This app's part of the beat schedule (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.periodic import Schedule, run_every


def schedule(env: Any) -> Schedule:
    """Return the entries by name; `env` is `config.env.Env`."""
    return {
        "reconcile-hosts": run_every(env.reconcile_seconds, "workspaces.tasks.reconcile_hosts"),
        "prove-promises": run_every(env.reconcile_seconds, "workspaces.tasks.prove_promises"),
        "expire-operations": run_every(10, "workspaces.tasks.expire_operations"),
        # Six times within a lease.
        "sweep-hosts": run_every(5, "workspaces.tasks.sweep_hosts"),
        "drain-hosts": run_every(5, "workspaces.tasks.drain_hosts"),
        # Every second: a TTL fires within two seconds of its time. With nothing due it is one indexed query.
        "sweep-due": run_every(1, "workspaces.tasks.sweep_due", lives=1),
        "correct-due-times": run_every(60, "workspaces.tasks.correct_due_times"),
        "stop-suspended": run_every(5, "workspaces.tasks.stop_suspended"),
        # A tick is charged at most half a tick after it was written, also if the writer's notification was lost.
        "charge-metered": run_every(env.metering_seconds / 2, "workspaces.tasks.charge_metered", lives=1),
        "disconnect-domains": run_every(10, "workspaces.tasks.disconnect_domains"),
        "charge-snapshots": run_every(60, "workspaces.tasks.charge_snapshots"),
        "close-billing-cycles": run_every(10, "workspaces.tasks.close_billing_cycles"),
        # Once a night; the row of the check says whether it was made.
        "check-ledger": run_every(600, "workspaces.tasks.check_ledger"),
        # No request depends on it: readers compute the buckets that are not rolled up yet.
        "compact-usage": run_every(300, "workspaces.tasks.compact_usage"),
    }
