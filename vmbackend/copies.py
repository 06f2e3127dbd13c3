"""Copies: the part of the driver contract that keeps a machine's disk and memory, and loads them as another machine.

States and terms are those of `vmbackend.driver`. Besides:
* *snapshot*: disk and, unless the machine was off, memory of one machine at one instant, in the store of its host,
  under an id (`[a-z0-9_]{1,80}`). It is complete or absent, never changes, and contains what the machine contained.
* *renewal*: a guest whose memory was loaded gives itself the identity of the machine that it is now. Until it has
  proven that, no packet passes and no program of its user runs.
* A machine that was made from a snapshot, or goes on after one, shares blocks with it. Each holds its own links to the
  files: any of them can be removed at any time, and the bytes are freed with the last link.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from vmbackend.power import StartedFrom


class AfterSnapshot(StrEnum):
    """The state of a machine after its snapshot. It is in it from the instant of the snapshot on."""

    RESUME = "resume"  # as it was before
    PAUSED = "paused"
    STOP = "stop"  # off


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that a snapshot's memory needs and the host has otherwise, each as text that its owner may read."""

    what: str
    snapshot: str
    host: str


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A complete snapshot. `size_bytes`: what its memory and all layers of its disk occupy on the host.

    `disk_mb`: the size of its disk; `made_at`: the instant that it shows, seconds since the epoch.
    """

    id: str
    memory: bool
    size_bytes: int
    disk_mb: int
    made_at: float


@dataclass(frozen=True, slots=True)
class CopyPace:
    """How a disk is copied: `bytes_per_second` at most (0: as fast as it goes), until `give_up`, which is asked often
    and must not wait, returns true.
    """

    give_up: Callable[[], bool] = lambda: False
    bytes_per_second: int = 0


AT_ONCE = CopyPace()


class Copied(ABC):
    """The part of a driver that makes, loads and removes snapshots."""

    @abstractmethod
    def snapshot(
        self,
        machine_id: str,
        snapshot_id: str,
        *,
        after: AfterSnapshot = AfterSnapshot.RESUME,
        memory: bool = True,
    ) -> StoredSnapshot:
        """Keep the machine's disk and, unless it is off, its memory; both are of one instant. `memory` False: the disk
        alone, as a loss of power would leave it.

        Running: it stands still while memory is written, or where that is safe only at its end. Paused and asleep: it
        stays so (`PAUSED` of a sleeping one changes nothing). A complete snapshot of that id is returned as it is, once
        `after` holds. Raise MachineNotFound, CapacityExceeded (before anything is written), BackendUnavailable, and
        GuestUnreachable if the guest does not keep its programs still while its memory is saved. On
        failure the machine is as it was, and nothing of the snapshot is left; after a death during the call, `open`
        removes what is left.
        """

    @abstractmethod
    def find_snapshot(self, snapshot_id: str) -> StoredSnapshot | None:
        """Return the snapshot; None if this host has none of that id. Raise BackendUnavailable."""

    @abstractmethod
    def remove_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot. Idempotent. Machines that share its blocks keep them. Raise BackendUnavailable."""

    @abstractmethod
    def compare_snapshot(self, snapshot_id: str) -> tuple[Difference, ...]:
        """Return all that keeps its memory from being loaded on this host as that is now; empty if nothing does.

        Empty also for a snapshot without memory. Raise SnapshotNotFound.
        """

    @abstractmethod
    def take_disk(self, machine_id: str, snapshot_id: str) -> None:
        """Replace the disk of a machine that is off by the snapshot's, which the next `prepare` grows as usual.

        Atomic. Definition, address and host key stay. Idempotent. Raise MachineNotFound, SnapshotNotFound,
        InvalidMachineState (not off; or its disk is smaller than the snapshot's), CapacityExceeded, BackendUnavailable.
        """

    @abstractmethod
    def require_room(self, machine_id: str, disk_mb: int, *, snapshot_id: str = "", from_memory: bool = False) -> None:
        """Check that the host's disk has room for what may follow: the machine's disk grows to `disk_mb` and, if a
        snapshot is named, is replaced by that one's, from which it boots, or goes on `from_memory`.

        In any state, and also without such a machine; nothing is changed. Raise CapacityExceeded, SnapshotNotFound,
        InvalidMachineState (a disk of `disk_mb` is smaller than the snapshot's).
        """

    @abstractmethod
    def load(self, machine_id: str, snapshot_id: str) -> StartedFrom | None:
        """Start a machine that is off, whose disk was taken from this snapshot, from its memory.

        Return once the guest runs under this machine's identity, has the right clock, a reseeded random pool and
        another generation, and its network is connected; `wait_ready` returns at once then. Its definition, environment
        and keys are those of the last `prepare`; running programs keep theirs. None: it has a process already.
        Raise SnapshotNotFound, SnapshotIncompatible, CopyUnproven (its guest did not renew itself as asked),
        CapacityExceeded (memory), InvalidMachineState, MachineNotFound, BackendUnavailable. The machine is off then,
        and no program of its user ran.
        """

    @abstractmethod
    def flatten(self, machine_id: str, timeout: float, pace: CopyPace = AT_ONCE) -> None:
        """Make the machine's disk one file that shares nothing, in any state but asleep. No effect if it is one.

        A running machine goes on meanwhile. Raise CapacityExceeded (before anything is written), DeadlineExceeded (also
        once it is given up), InvalidMachineState, MachineNotFound, BackendUnavailable; the disk is as it was then.
        """

    @abstractmethod
    def stale_disks(self) -> dict[str, int]:
        """Return the machines, in any state but asleep, whose disks consist of several files that nothing else needs
        any more: `flatten` frees what their guests have overwritten. With each the MiB that it has to write, at most.

        Raise BackendUnavailable.
        """
