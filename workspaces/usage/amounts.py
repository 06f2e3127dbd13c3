"""Amounts of usage: differences of counters, and points of a series."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from vmbackend.samples import Sample

KIB = 1024


@dataclass(slots=True)
class Amounts:
    """Amounts of usage: nanoseconds and bytes."""

    cpu_time_ns: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0

    def add(self, other: Amounts) -> None:
        self.cpu_time_ns += other.cpu_time_ns
        self.disk_read_bytes += other.disk_read_bytes
        self.disk_write_bytes += other.disk_write_bytes
        self.net_rx_bytes += other.net_rx_bytes
        self.net_tx_bytes += other.net_tx_bytes

    def subtract(self, other: Amounts) -> None:
        """Subtract, as the opposite of `add`."""
        self.cpu_time_ns -= other.cpu_time_ns
        self.disk_read_bytes -= other.disk_read_bytes
        self.disk_write_bytes -= other.disk_write_bytes
        self.net_rx_bytes -= other.net_rx_bytes
        self.net_tx_bytes -= other.net_tx_bytes


def amounts_between(before: Sample | None, now: Sample) -> Amounts:
    """Return the amounts used between two samples; never negative. Counters of another process began at zero, so they
    count in full.
    """
    if before is None or _is_another_process(before, now):
        return Amounts(now.cpu_time_ns, now.disk_read_bytes, now.disk_write_bytes, now.net_rx_bytes, now.net_tx_bytes)
    return Amounts(
        max(0, now.cpu_time_ns - before.cpu_time_ns),
        max(0, now.disk_read_bytes - before.disk_read_bytes),
        max(0, now.disk_write_bytes - before.disk_write_bytes),
        max(0, now.net_rx_bytes - before.net_rx_bytes),
        max(0, now.net_tx_bytes - before.net_tx_bytes),
    )


def _is_another_process(before: Sample, now: Sample) -> bool:
    """Return whether the generation differs. If the backend does not know it, a counter that decreased indicates
    another process.
    """
    if before.generation and now.generation:
        return before.generation != now.generation
    return (
        now.cpu_time_ns < before.cpu_time_ns
        or now.disk_read_bytes < before.disk_read_bytes
        or now.disk_write_bytes < before.disk_write_bytes
        or now.net_rx_bytes < before.net_rx_bytes
        or now.net_tx_bytes < before.net_tx_bytes
    )


_PACKED = struct.Struct("<qB8q")


@dataclass(slots=True)
class Point:
    """Usage in one bucket. `start` is in seconds since the epoch; every other field is a sum, so points add up."""

    start: int
    observed_ms: int = 0
    cpu_time_ns: int = 0
    cpu_capacity_ns: int = 0
    memory_kib_ms: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0

    def add(self, other: Point) -> None:
        self.observed_ms += other.observed_ms
        self.cpu_time_ns += other.cpu_time_ns
        self.cpu_capacity_ns += other.cpu_capacity_ns
        self.memory_kib_ms += other.memory_kib_ms
        self.disk_read_bytes += other.disk_read_bytes
        self.disk_write_bytes += other.disk_write_bytes
        self.net_rx_bytes += other.net_rx_bytes
        self.net_tx_bytes += other.net_tx_bytes

    @property
    def sums(self) -> tuple[int, ...]:
        """Return every field but the start, in the order of the class."""
        return (
            self.observed_ms, self.cpu_time_ns, self.cpu_capacity_ns, self.memory_kib_ms,
            self.disk_read_bytes, self.disk_write_bytes, self.net_rx_bytes, self.net_tx_bytes,
        )  # fmt: skip

    @property
    def cpu_percent(self) -> float:
        """Return the used part of the workspace's CPUs in percent; at most 100, as short bursts may exceed it."""
        return percent(self.cpu_time_ns, self.cpu_capacity_ns)

    @property
    def memory_bytes(self) -> int:
        """Return the average memory in use."""
        return self.memory_kib_ms * KIB // self.observed_ms if self.observed_ms else 0

    def pack(self, reset_count: int) -> bytes:
        return _PACKED.pack(self.start, reset_count & 0xFF, *self.sums)

    @classmethod
    def unpack(cls, raw: bytes, reset_count: int) -> Self | None:
        """Return a point, or None if it is from before a deletion of usage, or if the bytes are malformed."""
        if len(raw) != _PACKED.size:
            return None
        start, mark, *sums = _PACKED.unpack(raw)
        return cls(start, *sums) if mark == reset_count & 0xFF else None


SUMS = tuple(name for name in Point.__slots__ if name != "start")


def percent(part: float, whole: float) -> float:
    """Return 0 to 100, with two digits."""
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 2) if whole > 0 else 0.0
