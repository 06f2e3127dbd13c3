"""Counters of `/metrics`. They are declared here so that the process that shows them knows all of them."""

from __future__ import annotations

from common.counters import Counter, Histogram

OPERATIONS_ENDED = Counter("mvm_operations", "Operations on workspaces that ended.", ("kind", "outcome"))
OPERATION_SECONDS = Histogram(
    "mvm_operation_seconds",
    "Seconds from the request of an operation to its end.",
    ("kind",),
    (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0),
)
OPERATION_RETRIES = Counter("mvm_operation_retries", "Attempts of operations that were repeated.", ("kind",))
CORRECTIONS = Counter("mvm_reconcile", "Corrections of reconcile: workspaces, and removed orphans.", ("kind",))
MOVES_ENDED = Counter("mvm_moves", "Moves of workspaces to other hosts that ended.", ("outcome",))
HOST_DRIFTS = Counter(
    "mvm_host_drifts", "Hosts whose counters of promised resources differed from their workspaces.", ("outcome",)
)
