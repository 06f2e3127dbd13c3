"""The newest samples, in Redis: tiers 0 and 1, and the latest sample of each machine.

For each workspace two lists of bounded length and one value. Each expires, so nothing remains of a deleted workspace or
of a host that no longer reports. `host.metering.sample_publisher` writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from common.redis import redis_client, redis_key
from workspaces.usage.amounts import Amounts, Point

PACKED_SAMPLE = struct.Struct("<dqIBI23q")
HAS_MEMORY, HAS_DISK = 1, 2


@dataclass(frozen=True, slots=True)
class LatestSample:
    """The latest sample of a machine, at most 15 seconds old. Network counters are of its process, since its start."""

    at: float
    tick: int
    reset_count: int
    memory_mb: int
    observed_ms: int
    cpu_time_ns: int
    cpu_capacity_ns: int
    net_rx_bytes: int
    net_tx_bytes: int
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    disk_used_bytes: int | None
    disk_total_bytes: int | None
    disk_read_bytes: int
    disk_write_bytes: int
    process_cpu_time_ns: int
    # Usage after `tick`, which is not yet in the rows: of the totals and of the points.
    unwritten: Amounts
    unwritten_points: Point


class SampledMachine(NamedTuple):
    """Machine of a workspace on a host, which alone writes its samples."""

    host_id: str | None
    workspace_id: str

    @property
    def key(self) -> str:
        return redis_key(f"samples:{self.host_id or ''}:{self.workspace_id}")


def latest_samples(machines: Sequence[SampledMachine]) -> dict[str, LatestSample]:
    """Return the latest samples of these machines by workspace, as far as there are any. Raise redis.RedisError."""
    if not machines:
        return {}
    found = redis_client().mget([f"{machine.key}:now" for machine in machines])
    pairs = zip(machines, found, strict=True)
    return {machine.workspace_id: _unpacked(raw) for machine, raw in pairs if raw and len(raw) == PACKED_SAMPLE.size}


def recent_points(machine: SampledMachine, reset_count: int) -> tuple[list[Point], list[Point]]:
    """Return the points of tiers 0 and 1, as they were written. Raise redis.RedisError."""
    with redis_client().pipeline(transaction=False) as pipe:
        for tier in (0, 1):
            pipe.lrange(f"{machine.key}:{tier}", 0, -1)
        seconds, tens = pipe.execute()
    return _points(seconds, reset_count), _points(tens, reset_count)


def delete_samples(machine: SampledMachine) -> None:
    """Remove the samples of a workspace. Raise redis.RedisError."""
    redis_client().delete(*(f"{machine.key}:{what}" for what in ("0", "1", "now")))


def _points(found: Iterable[bytes], reset_count: int) -> list[Point]:
    return [point for raw in found if (point := Point.unpack(raw, reset_count)) is not None]


def _unpacked(raw: Any) -> LatestSample:
    (
        at, tick, reset_count, flags, memory_mb, observed_ms, cpu, capacity, net_rx, net_tx, memory_used, memory_total,
        disk_used, disk_total, disk_read, disk_write, process_cpu, *rest,
    ) = PACKED_SAMPLE.unpack(raw)  # fmt: skip
    memory, disk = bool(flags & HAS_MEMORY), bool(flags & HAS_DISK)
    return LatestSample(
        at=at,
        tick=tick,
        reset_count=reset_count,
        memory_mb=memory_mb,
        observed_ms=observed_ms,
        cpu_time_ns=cpu,
        cpu_capacity_ns=capacity,
        net_rx_bytes=net_rx,
        net_tx_bytes=net_tx,
        memory_used_bytes=memory_used if memory else None,
        memory_total_bytes=memory_total if memory else None,
        disk_used_bytes=disk_used if disk else None,
        disk_total_bytes=disk_total if disk else None,
        disk_read_bytes=disk_read,
        disk_write_bytes=disk_write,
        process_cpu_time_ns=process_cpu,
        unwritten=Amounts(*rest[:5]),
        unwritten_points=Point(0, rest[5], rest[6], 0, 0, *rest[7:]),
    )


def cached_value(key: str) -> bytes | None:
    """Return the value that `cache_value` stored, or None after it expired. Raise redis.RedisError."""
    found: Any = redis_client().get(key)
    return found if found is None else bytes(found)


def cache_value(key: str, value: bytes, seconds: int) -> None:
    """Store a value for `seconds`. Raise redis.RedisError."""
    redis_client().set(key, value, ex=seconds)


def latest_sample_and_counter(machine: SampledMachine, counter: str) -> tuple[LatestSample | None, int]:
    """Return the latest sample of a machine and a counter, in one round trip. Raise redis.RedisError."""
    raw, count = redis_client().mget([f"{machine.key}:now", counter])
    return _unpacked(raw) if raw and len(raw) == PACKED_SAMPLE.size else None, int(count or 0)
