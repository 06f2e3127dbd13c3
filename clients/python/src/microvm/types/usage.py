"""What workspaces have used.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class AllUsageResponse(TypedDict):
    """Answer, or a part of one, of `usage.all`."""

    usage: dict[str, UsageTotals]
    total: UsageTotals


class UsageTotals(TypedDict):
    """Answer, or a part of one, of `usage.all`."""

    total_cpu_time_ns: int
    total_disk_read: int
    total_disk_write: int
    total_net_rx: int
    total_net_tx: int


ActivityResponse = TypedDict(
    "ActivityResponse",
    {
        "from": "str",
        "to": "str",
        "history": "dict[str, list[HistoryEntry]]",
        "truncated": "bool",
        "window_aggregated": "dict[str, WindowTotals]",
    },
)


class HistoryEntry(TypedDict):
    """Answer, or a part of one, of `usage.activity`."""

    at: str
    event: str
    actor: str
    detail: str


class WindowTotals(TypedDict):
    """Answer, or a part of one, of `usage.activity`."""

    total_cpu_time_ns: int
    total_disk_read: int
    total_disk_write: int
    total_net_rx: int
    total_net_tx: int
    uptime_seconds: int


SeriesResponse = TypedDict(
    "SeriesResponse",
    {
        "workspace_id": "str",
        "from": "str",
        "to": "str",
        "tier": "int",
        "resolution_seconds": "int",
        "points": "list[UsagePoint]",
        "tiers": NotRequired["list[TierSeries]"],
    },
)


class UsagePoint(TypedDict):
    """Answer, or a part of one, of `usage.series`."""

    timestamp: str
    cpu_time_ns: int
    cpu_percent: float
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int


TierSeries = TypedDict(
    "TierSeries", {"from": "str", "to": "str", "tier": "int", "resolution_seconds": "int", "points": "list[UsagePoint]"}
)


class TotalsResponse(TypedDict):
    """Answer, or a part of one, of `usage.totals`."""

    workspace_id: str
    usage: UsageTotals


class ChartResponse(TypedDict):
    """Answer, or a part of one, of `usage.credits_chart`."""

    granularity: str
    data: list[ChartPoint]
    total: float


class ChartPoint(TypedDict):
    """Answer, or a part of one, of `usage.credits_chart`."""

    date: str
    creditsBurned: float


class TrackingResponse(TypedDict):
    """Answer, or a part of one, of `usage.start_tracking`."""

    tracking: bool
