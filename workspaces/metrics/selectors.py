"""The stats object (specification, Stats object)."""

from __future__ import annotations

import logging
from typing import Any

import redis

from workspaces import call_counter
from workspaces.models import Workspace
from workspaces.usage import latest_samples
from workspaces.usage.amounts import percent
from workspaces.usage.latest_samples import LatestSample, SampledMachine

logger = logging.getLogger(__name__)

MIB = 1 << 20


def stats_of(workspace: Workspace) -> dict[str, Any]:
    """Return current statistics, at most a few seconds old; zeros if the workspace does not run or was not sampled
    recently.

    CPU and memory are in percent of the workspace's own; network counts since its last start. One Redis read, no query.
    Without Redis all are zero.
    """
    sample, count = _latest_sample(SampledMachine(workspace.host_id, workspace.pk))
    running = workspace.is_running
    # A sample of the previous process, which ended just before this one started, is ignored.
    fresh = sample if sample and workspace.started_at and sample.at >= workspace.started_at.timestamp() else None
    return {
        **(_measured(fresh) if running and fresh else _nothing(workspace.memory_mb if running else 0)),
        "uptime": workspace.uptime(),
        "apiCalls": count,
    }


def percentages(stats: dict[str, Any]) -> dict[str, float]:
    """Return `cpu_usage`, `memory_usage` and `disk_usage` of a stats object, as sandboxes and events show them."""
    used, total = stats["guestDiskUsed"], stats["guestDiskTotal"]
    return {
        "cpu_usage": stats["cpuUsage"],
        "memory_usage": stats["memoryUsage"],
        "disk_usage": round(min(used / total, 1) * 100, 2) if total else 0,
    }


def human_readable(size: float) -> str:
    """Return a size as `1.5 MB`: at most one decimal place, powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1000
    return f"{size:.1f}".removesuffix(".0") + " TB"


def _latest_sample(machine: SampledMachine) -> tuple[LatestSample | None, int]:
    workspace_id = machine.workspace_id
    key = call_counter.calls_key(workspace_id)
    try:
        return call_counter.add_unflushed(workspace_id, lambda: latest_samples.latest_sample_and_counter(machine, key))
    except redis.RedisError as exc:
        logger.warning("the statistics of %s cannot be read: %s", workspace_id, exc)
        return None, call_counter.unflushed_calls(workspace_id)


def _measured(sample: LatestSample) -> dict[str, Any]:
    used, total = sample.memory_used_bytes or 0, sample.memory_total_bytes or 0
    return {
        "cpuUsage": percent(sample.cpu_time_ns, sample.cpu_capacity_ns),
        "memoryUsage": percent(used, sample.memory_mb * MIB),
        "memoryUsedMB": round(used / MIB, 1),
        "memoryTotalMB": sample.memory_mb,
        "guestMemoryUsed": used,
        "guestMemoryTotal": total,
        "guestDiskUsed": sample.disk_used_bytes or 0,
        "guestDiskTotal": sample.disk_total_bytes or 0,
        "networkIn": human_readable(sample.net_rx_bytes),
        "networkOut": human_readable(sample.net_tx_bytes),
        "networkInBytes": sample.net_rx_bytes,
        "networkOutBytes": sample.net_tx_bytes,
    }


def _nothing(memory_mb: int) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("cpuUsage", "memoryUsage", "memoryUsedMB", "guestMemoryUsed", "guestMemoryTotal", "guestDiskUsed",
         "guestDiskTotal", "networkInBytes", "networkOutBytes"), 0,
    )  # fmt: skip
    return {**counts, "memoryTotalMB": memory_mb, "networkIn": human_readable(0), "networkOut": human_readable(0)}
