"""The newest samples, in Redis: tiers 0 and 1, and the last look at each machine.

For each workspace two lists of bounded length and one value. Each expires by itself, so nothing stays of a workspace
that is gone or of a host that fell silent. One script call writes a few hundred machines.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from common.redis import open_client, redis_client, redis_key
from workspaces.usage.amounts import Amounts, Point
from workspaces.usage.meter import Live

CHUNK = 250  # machines in one script call: Redis serves nobody else meanwhile
SAMPLER_SECONDS = 0.5  # a Redis that hangs makes one sample late, not the thread

# Entries and seconds: a few buckets more than the tiers reach, for the reader whose clock differs.
_WRITE = """
for i = 1, #KEYS do
    local at = 3 * i
    local key = KEYS[i]
    if ARGV[at - 2] ~= '' then
        redis.call('RPUSH', key .. ':0', ARGV[at - 2])
        redis.call('LTRIM', key .. ':0', -150, -1)
        redis.call('EXPIRE', key .. ':0', 150)
    end
    if ARGV[at - 1] ~= '' then
        redis.call('RPUSH', key .. ':1', ARGV[at - 1])
        redis.call('LTRIM', key .. ':1', -100, -1)
        redis.call('EXPIRE', key .. ':1', 1000)
    end
    if ARGV[at] ~= '' then redis.call('SET', key .. ':now', ARGV[at], 'EX', 15) end
end
"""
_SEEN = struct.Struct("<dqIBI23q")
_HAS_MEMORY, _HAS_DISK = 1, 2


@dataclass(slots=True)
class Pushed:
    """What the sampler writes of one machine: the last look, the second's point, the ten seconds that ended."""

    workspace_id: str
    cleared: int
    now: Live | None = None
    second: Point | None = None
    ten: Point | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The last look at a machine, at most 15 seconds old. Network counters are of its process, since its start."""

    at: float
    tick: int
    cleared: int
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
    # Counted and not yet in the rows: everything after `tick`, of the totals and of the points.
    unwritten: Amounts
    unwritten_points: Point


def _key(workspace_id: str) -> str:
    return redis_key(f"usage:{workspace_id}")


class Publisher:
    """The sampler's own connection. Raises redis.RedisError."""

    def __init__(self) -> None:
        self._redis = open_client(SAMPLER_SECONDS)
        self._script = self._redis.register_script(_WRITE)

    def push(self, pushed: Sequence[Pushed]) -> None:
        for first in range(0, len(pushed), CHUNK):
            chunk = pushed[first : first + CHUNK]
            keys = [_key(item.workspace_id) for item in chunk]
            arguments: list[bytes] = []
            for item in chunk:
                arguments.append(item.second.pack(item.cleared) if item.second else b"")
                arguments.append(item.ten.pack(item.cleared) if item.ten else b"")
                arguments.append(_packed(item.now) if item.now else b"")
            self._script(keys=keys, args=arguments)

    def close(self) -> None:
        self._redis.close()


def seen(workspace_ids: Sequence[str]) -> dict[str, Seen]:
    """The last looks at these machines, of those that were looked at lately. Raises redis.RedisError."""
    if not workspace_ids:
        return {}
    found = redis_client().mget([f"{_key(workspace_id)}:now" for workspace_id in workspace_ids])
    pairs = zip(workspace_ids, found, strict=True)
    return {workspace_id: _unpacked(raw) for workspace_id, raw in pairs if raw and len(raw) == _SEEN.size}


def recent(workspace_id: str, cleared: int) -> tuple[list[Point], list[Point]]:
    """The points of tiers 0 and 1, as they were written. Raises redis.RedisError."""
    with redis_client().pipeline(transaction=False) as pipe:
        for tier in (0, 1):
            pipe.lrange(f"{_key(workspace_id)}:{tier}", 0, -1)
        seconds, tens = pipe.execute()
    return _points(seconds, cleared), _points(tens, cleared)


def forget(workspace_id: str) -> None:
    """Raises redis.RedisError."""
    redis_client().delete(*(f"{_key(workspace_id)}:{what}" for what in ("0", "1", "now")))


def _points(found: Iterable[bytes], cleared: int) -> list[Point]:
    return [point for raw in found if (point := Point.unpack(raw, cleared)) is not None]


def _packed(live: Live) -> bytes:
    sample, point, disk = live.sample, live.point, live.disk
    unwritten, points = live.unwritten, live.unwritten_points
    has_memory = sample.memory_total_bytes is not None
    return _SEEN.pack(
        sample.at,
        live.tick,
        live.entry.cleared & 0xFFFFFFFF,
        (_HAS_MEMORY if has_memory else 0) | (_HAS_DISK if disk else 0),
        live.entry.memory_mb,
        point.observed_ms if point else 0,
        point.cpu_time_ns if point else 0,
        point.cpu_capacity_ns if point else 0,
        sample.net_rx_bytes,
        sample.net_tx_bytes,
        sample.memory_used_bytes or 0,
        sample.memory_total_bytes or 0,
        disk.used_bytes if disk else 0,
        disk.total_bytes if disk else 0,
        sample.disk_read_bytes,
        sample.disk_write_bytes,
        sample.cpu_time_ns,
        unwritten.cpu_time_ns,
        unwritten.disk_read_bytes,
        unwritten.disk_write_bytes,
        unwritten.net_rx_bytes,
        unwritten.net_tx_bytes,
        points.observed_ms,
        points.cpu_time_ns,
        points.disk_read_bytes,
        points.disk_write_bytes,
        points.net_rx_bytes,
        points.net_tx_bytes,
    )


def _unpacked(raw: Any) -> Seen:
    (
        at, tick, cleared, flags, memory_mb, observed_ms, cpu, capacity, net_rx, net_tx, memory_used, memory_total,
        disk_used, disk_total, disk_read, disk_write, process_cpu, *rest,
    ) = _SEEN.unpack(raw)  # fmt: skip
    memory, disk = bool(flags & _HAS_MEMORY), bool(flags & _HAS_DISK)
    return Seen(
        at=at,
        tick=tick,
        cleared=cleared,
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


def kept(key: str) -> bytes | None:
    """What `keep` put there, while it lasts. Raises redis.RedisError."""
    found: Any = redis_client().get(key)
    return found if found is None else bytes(found)


def keep(key: str, value: bytes, seconds: int) -> None:
    """Raises redis.RedisError."""
    redis_client().set(key, value, ex=seconds)


def look(workspace_id: str, counter: str) -> tuple[Seen | None, int]:
    """The last look at a machine and a counter, in one round trip. Raises redis.RedisError."""
    raw, count = redis_client().mget([f"{_key(workspace_id)}:now", counter])
    return _unpacked(raw) if raw and len(raw) == _SEEN.size else None, int(count or 0)
