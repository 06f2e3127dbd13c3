"""Measuring machines: the part of the driver contract that is called every second, and what it gives.

Counters are those of the machine's process, so they begin at zero with each start and each wake. `run` names the
process: while it is the same, counters only grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One machine at one moment. `at`: seconds since the epoch; the rest: nanoseconds and bytes since the start.

    Memory is what the guest says of itself, within what the machine has; None where it has not said anything (yet).
    """

    at: float
    run: str  # which process; empty where the backend cannot tell
    cpu_time_ns: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0  # received by the guest
    net_tx_bytes: int = 0
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """The guest's writable disk, as the guest says; `used` is never more than `total`, nor `total` than the disk."""

    used_bytes: int
    total_bytes: int


class Metered(ABC):
    """What a driver can measure. Neither method changes anything or waits for an operation of another machine."""

    @abstractmethod
    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        """The machines of these that have a process, running or paused; others are left out of the answer.

        Cheap enough for every second: one call to the hypervisor for all of them. A machine that is being saved or
        ended now may delay the call, so callers leave out those with an operation in flight. Raises BackendUnavailable.
        """

    @abstractmethod
    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        """How full the guest's writable disk is. The guest is asked, which may lie.

        Returns within about twice `timeout` seconds (rounded up to whole ones). Raises MachineNotFound,
        InvalidMachineState (it does not run), GuestUnreachable (silent, or it answers nonsense), BackendUnavailable.
        """
