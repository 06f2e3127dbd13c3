"""What the database holds, read without the product's own queries. Amounts are whole numbers of 1e-8."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection

_QUERIES = {
    "balances": "SELECT namespace_id, service, used, held, quota_limit, overdraft, on_overdraft_action,"
    " last_threshold_fired, depleted_fired FROM credits_balance",
    "namespaces": "SELECT id, status, suspended_by_quota, suspended_by_hand, quota_stops_workspaces"
    " FROM namespaces_namespace",
    "events": "SELECT namespace_id, data FROM webhooks_event"
    " WHERE type IN ('namespace.quota.threshold', 'credits.depleted') ORDER BY id",
    "entries": "SELECT namespace_id, service, balance_after FROM credits_entry JOIN credits_balance"
    " ON credits_balance.id = balance_id"
    " WHERE credits_entry.id IN (SELECT MAX(id) FROM credits_entry GROUP BY balance_id)",
    "metered": "SELECT workspace_id, SUM(cpu_time_ns), SUM(disk_bytes), SUM(network_bytes), SUM(memory_mb_ms)"
    " FROM workspaces_meterrecord JOIN workspaces_metered ON workspaces_metered.id = metered_id GROUP BY workspace_id",
    "left": "SELECT COUNT(*) FROM workspaces_meterrecord"
    " WHERE id > (SELECT COALESCE(MAX(record_id), 0) FROM workspaces_chargeposition)",
}


def observed_state() -> dict[str, Any]:
    """See `Worlds.expected_state`."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    with connection.cursor() as cursor:
        for name, query in _QUERIES.items():
            cursor.execute(query)
            rows[name] = cursor.fetchall()
    announced: dict[tuple[str, str], list[str]] = {}
    for namespace, text in rows["events"]:
        data = json.loads(text)
        what = str(float(data["threshold"])) if "threshold" in data else "depleted"
        announced.setdefault((namespace, data["service"]), []).append(what)
    return {
        "balances": {row[:2]: row[2:] for row in rows["balances"] if any(row[2:4]) or row[4] is not None},
        "namespaces": {row[0]: row[1:] for row in rows["namespaces"]},
        "announced": announced,
        "entries": {row[:2]: row[2] for row in rows["entries"] if row[2]},
        "metered": {row[0]: tuple(map(int, row[1:])) for row in rows["metered"]},
        "left": rows["left"][0][0],
    }
