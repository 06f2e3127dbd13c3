"""The sampler's connection to Redis: one script call writes the newest samples of a few hundred machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.redis import open_client
from workspaces.host.metering.meter import LiveState
from workspaces.usage.amounts import Point
from workspaces.usage.latest_samples import HAS_DISK, HAS_MEMORY, PACKED_SAMPLE, SampledMachine

CHUNK = 250  # machines in one script call: it blocks Redis for everything else
SAMPLER_SECONDS = 0.5  # a Redis that hangs makes one sample late, not the thread

# Lengths and expiry: a few buckets more than the tiers cover, for readers whose clocks differ.
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


@dataclass(slots=True)
class SampleUpdate:
    """Update that the sampler publishes for one machine: its latest state, and points of a second and ten seconds."""

    workspace_id: str
    reset_count: int
    latest: LiveState | None = None
    second: Point | None = None
    ten_seconds: Point | None = None


class SamplePublisher:
    """The sampler's own connection. Raises redis.RedisError."""

    def __init__(self, host_id: str) -> None:
        self._host_id = host_id
        self._redis = open_client(SAMPLER_SECONDS)
        self._script = self._redis.register_script(_WRITE)

    def publish(self, updates: Sequence[SampleUpdate]) -> None:
        for first in range(0, len(updates), CHUNK):
            chunk = updates[first : first + CHUNK]
            keys = [SampledMachine(self._host_id, item.workspace_id).key for item in chunk]
            arguments: list[bytes] = []
            for item in chunk:
                arguments.append(item.second.pack(item.reset_count) if item.second else b"")
                arguments.append(item.ten_seconds.pack(item.reset_count) if item.ten_seconds else b"")
                arguments.append(_packed(item.latest) if item.latest else b"")
            self._script(keys=keys, args=arguments)

    def close(self) -> None:
        self._redis.close()


def _packed(live: LiveState) -> bytes:
    sample, point, disk = live.sample, live.point, live.disk
    unwritten, points = live.unwritten, live.unwritten_points
    has_memory = sample.memory_total_bytes is not None
    return PACKED_SAMPLE.pack(
        sample.at,
        live.tick,
        live.target.reset_count & 0xFFFFFFFF,
        (HAS_MEMORY if has_memory else 0) | (HAS_DISK if disk else 0),
        live.target.memory_mb,
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
