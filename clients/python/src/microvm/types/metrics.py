"""The present state of a workspace's machine.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, TypedDict

from microvm.types.workspaces import Failure, Resources


class StatsResponse(TypedDict):
    """Answer, or a part of one, of `metrics.stats`."""

    stats: Stats


class Stats(TypedDict):
    """Answer, or a part of one, of `metrics.stats`."""

    cpuUsage: float
    memoryUsage: float
    memoryUsedMB: float
    memoryTotalMB: float
    guestMemoryUsed: int
    guestMemoryTotal: int
    guestDiskUsed: int
    guestDiskTotal: int
    networkIn: str
    networkOut: str
    networkInBytes: int
    networkOutBytes: int
    uptime: int
    apiCalls: int


class InfoResponse(TypedDict):
    """Answer, or a part of one, of `metrics.info`."""

    info: MachineInfo


class MachineInfo(TypedDict):
    """Answer, or a part of one, of `metrics.info`."""

    id: str
    status: str
    state: str
    ready: bool
    ip: str | None
    host: str | None
    image: str
    image_digest: str | None
    start_time: str | None
    uptime: int
    resources: Resources
    error: Failure | None
    machine: dict[str, Any] | None
    counters: Counters | None


class Counters(TypedDict):
    """Answer, or a part of one, of `metrics.info`."""

    at: str
    cpu_time_ns: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int
    memory_used_bytes: int | None
    memory_total_bytes: int | None


class ConfigResponse(TypedDict):
    """Answer, or a part of one, of `metrics.config`."""

    config: dict[str, Any]
