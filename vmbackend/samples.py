"""Metering: the part of the driver contract that is called every second, and its results.

Counters are those of the machine's process, so they begin at zero with each start and each wake. `generation`
identifies the process: while it is unchanged, counters only grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One machine at one moment. `at`: seconds since the epoch; the rest: nanoseconds and bytes since the start.

    Memory as the guest reports it, limited to what the machine has; None until it has reported.
    """

    at: float
    generation: str  # identifies the process; empty if the backend does not know
    cpu_time_ns: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0  # received by the guest
    net_tx_bytes: int = 0
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """The guest's writable disk, as the guest reports it; at most the size of the disk."""

    used_bytes: int
    total_bytes: int


class Metered(ABC):
    """The part of a driver that measures. Neither method changes anything or waits for an operation of another
    machine.
    """

    @abstractmethod
    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        """Return samples of those machines that have a process, running or paused; others are omitted.

        Cheap enough to be called every second: one call to the hypervisor. A machine that is being started, saved or
        stopped may delay the call by seconds, so callers ask for it by a call of its own; it is omitted if its counters
        cannot be read completely. May be called concurrently. Raise BackendUnavailable.
        """

    @abstractmethod
    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        """Return usage of the guest's writable disk. Reported by the guest, so it is not trustworthy.

        Return within about twice `timeout` seconds (rounded up to whole ones). Raise MachineNotFound,
        InvalidMachineState (not running), GuestUnreachable (no answer, or an invalid one), BackendUnavailable.
        """
