"""The stats object (specification, Stats object)."""

from __future__ import annotations

import logging
from typing import Any

import redis

from workspaces import call_counter
from workspaces.models import Workspace
from workspaces.usage import latest_samples
from workspaces.usage.amounts import percent
from workspaces.usage.latest_samples import LatestSample

logger = logging.getLogger(__name__)

MIB = 1 << 20


def stats_of(workspace: Workspace) -> dict[str, Any]:
    """How a workspace is now, at most a few seconds old; zeros for one that does not run or was not seen lately.

    CPU and memory in percent of what it has; network since its last start. One look at Redis, no query; without Redis
    zeros.
    """
    look, count = _look(workspace.pk)
    running = workspace.is_running
    # The look at a process that ended just before this one began is not one at this one.
    fresh = look if look and workspace.started_at and look.at >= workspace.started_at.timestamp() else None
    return {
        **(_measured(fresh) if running and fresh else _nothing(workspace.memory_mb if running else 0)),
        "uptime": workspace.uptime(),
        "apiCalls": count,
    }


def human_readable(size: float) -> str:
    """`1.5 MB`: at most one digit behind the point, thousands."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1000
    return f"{size:.1f}".removesuffix(".0") + " TB"


def _look(workspace_id: str) -> tuple[LatestSample | None, int]:
    waiting = call_counter.unflushed_calls(workspace_id)
    try:
        look, count = latest_samples.latest_sample_and_counter(workspace_id, call_counter.calls_key(workspace_id))
    except redis.RedisError as exc:
        logger.warning("statistics of %s: %s", workspace_id, exc)
        return None, waiting
    return look, count + waiting


def _measured(look: LatestSample) -> dict[str, Any]:
    used, total = look.memory_used_bytes or 0, look.memory_total_bytes or 0
    return {
        "cpuUsage": percent(look.cpu_time_ns, look.cpu_capacity_ns),
        "memoryUsage": percent(used, look.memory_mb * MIB),
        "memoryUsedMB": round(used / MIB, 1),
        "memoryTotalMB": look.memory_mb,
        "guestMemoryUsed": used,
        "guestMemoryTotal": total,
        "guestDiskUsed": look.disk_used_bytes or 0,
        "guestDiskTotal": look.disk_total_bytes or 0,
        "networkIn": human_readable(look.net_rx_bytes),
        "networkOut": human_readable(look.net_tx_bytes),
        "networkInBytes": look.net_rx_bytes,
        "networkOutBytes": look.net_tx_bytes,
    }


def _nothing(memory_mb: int) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("cpuUsage", "memoryUsage", "memoryUsedMB", "guestMemoryUsed", "guestMemoryTotal", "guestDiskUsed",
         "guestDiskTotal", "networkInBytes", "networkOutBytes"), 0,
    )  # fmt: skip
    return {**counts, "memoryTotalMB": memory_mb, "networkIn": human_readable(0), "networkOut": human_readable(0)}
