"""Power: the part of the driver contract that starts, stops and suspends a machine's process.

States and terms are those of `vmbackend.driver`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum

# After the grace time of its programs (`Boot.stop_grace`) a guest ends all other processes, its logs and its disk, in
# about five seconds at most (src/power.c), on a busy host in more. A shutdown waits as much longer.
GUEST_END_SECONDS = 10


class StartedFrom(StrEnum):
    """How the present process of a machine began."""

    BOOT = "boot"
    TEMPLATE = "template"  # its kernel had started before, in no machine's name
    MEMORY = "memory"  # its own, saved by `sleep`
    POOL = "pool"  # it was ready before it was given to anybody
    SNAPSHOT = "snapshot"  # memory of a snapshot
    FORK = "fork"  # memory of a snapshot that was made for this


class Powered(ABC):
    """The part of a driver that handles the process of a machine that `prepare` has made."""

    @abstractmethod
    def start(self, machine_id: str) -> StartedFrom | None:
        """Start a prepared machine; return how it began, when its process runs, not when the guest is ready.

        Asleep: its memory is loaded and it continues as it was, ready included. Paused: resumed. Running: no effect.
        For the last two the answer is None. A template that cannot be loaded is replaced by a boot.
        Raise MachineNotFound, CapacityExceeded (memory; unchanged then), BackendUnavailable, SavedMemoryUnusable (its
        memory cannot be loaded and is dropped; the machine is off, the disk intact, the next start is a cold one). On
        any other failure the machine is off, or still asleep if it was.
        """

    @abstractmethod
    def wait_ready(self, machine_id: str, timeout: float) -> None:
        """Wait until the guest has reported `ready` since its last start: its control port listens then.

        For a machine that an earlier driver started, whose report may be lost, the port is probed. Changes nothing.
        Raise MachineExited (it stopped first), DeadlineExceeded, MachineNotFound.
        """

    @abstractmethod
    def shutdown(self, machine_id: str, grace: float) -> bool:
        """Press the power button and wait at most `grace` seconds; then destroy.

        Return True if the guest powered off by itself. Off or absent: True at once. Paused: resumed first. Asleep: its
        memory is dropped, True. Afterwards the machine is off. Raise BackendUnavailable.
        """

    @abstractmethod
    def destroy(self, machine_id: str) -> None:
        """End the machine's process at once and drop saved memory; disk and definition stay. Idempotent."""

    @abstractmethod
    def pause(self, machine_id: str) -> None:
        """Stop the CPUs; memory stays. Idempotent. Raise MachineNotFound, InvalidMachineState."""

    @abstractmethod
    def resume(self, machine_id: str) -> None:
        """Let the CPUs continue. Idempotent. Raise MachineNotFound, InvalidMachineState, BackendUnavailable.

        A machine whose start did not come to its end (its driver died) is confined and attached to its network first.
        """

    @abstractmethod
    def sleep(self, machine_id: str) -> None:
        """Write the machine's memory to the host's disk and end its process; `start` loads it again.

        From running or paused. Idempotent. Raise CapacityExceeded (disk; before anything is written), MachineNotFound,
        InvalidMachineState (it is off), BackendUnavailable. On failure the machine continues as it was, without partial
        memory. If the process dies during the call, the machine either runs, and the next `open` removes its partial
        memory, or it is asleep.
        """

    @abstractmethod
    def resync_guest(self, machine_id: str) -> None:
        """Resync after a sleep or a pause: step the guest's clock to the host's and reseed its kernel's random pool.

        Return when both are done. Raise MachineNotFound, InvalidMachineState (not running), GuestUnreachable.
        """
