"""Moves: the part of the driver contract for machines that come from another host.

States and terms are those of `vmbackend.driver` and `vmbackend.copies`. A move makes a snapshot on one host, copies its
files, and makes the machine from it on the other host, where it sleeps on the snapshot's memory until its next start.
The other host is not trusted: whatever it sends, it gets no more of this host than its machine had.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vmbackend.copies import Difference, StoredSnapshot


class Moved(ABC):
    """The part of a driver that gives snapshots to other hosts, and takes them."""

    @abstractmethod
    def snapshot_needs(self, snapshot_id: str) -> dict[str, Any]:
        """Return what the snapshot's memory needs of a host, as JSON has it; empty without memory.

        Raise SnapshotNotFound.
        """

    @abstractmethod
    def compare_needs(self, needs: Mapping[str, Any]) -> tuple[Difference, ...]:
        """Compare as `compare_snapshot` does, with the needs that another host wrote. What cannot be read differs.

        Raise BackendUnavailable.
        """

    @abstractmethod
    def snapshot_folder(self, snapshot_id: str) -> Path:
        """Return the folder with the files of a snapshot, for another host to copy: flat, and never written again.

        Raise SnapshotNotFound.
        """

    @abstractmethod
    def receive_snapshot(self, snapshot_id: str, fetch: Callable[[Path], None], *, size_bytes: int) -> StoredSnapshot:
        """Make a snapshot of the files of another host's `snapshot_folder`, which `fetch` copies into a folder; nothing
        writes there once it has returned.

        The folder is the same one in a later call, with what was copied by then, also after a death, until
        `drop_received`. A complete snapshot of that id is returned as it is, without a call of `fetch`. `size_bytes`:
        of the files, as the other host says. Raise CapacityExceeded (before `fetch`), SnapshotIncompatible (the files
        are not what a host of this version writes; they are removed), BackendUnavailable, and the errors of `fetch`.
        """

    @abstractmethod
    def begin_receiving(self, snapshot_id: str, fetch: Callable[[Path], None], *, size_bytes: int) -> None:
        """Let `fetch` copy files of an earlier snapshot of the same machine into the folder of `receive_snapshot`.

        That call has only the rest to copy then; nothing is made of them before. Raise CapacityExceeded (before
        `fetch`), SnapshotIncompatible (no snapshot has such an id), BackendUnavailable, and the errors of `fetch`.
        """

    @abstractmethod
    def drop_received(self, snapshot_id: str) -> None:
        """Remove what was copied for a snapshot that is not complete. Idempotent. Raise BackendUnavailable."""

    @abstractmethod
    def received_ids(self) -> frozenset[str]:
        """Return the ids of snapshots of which files were copied, and which are not complete."""

    @abstractmethod
    def sleep_on(self, machine_id: str, snapshot_id: str) -> None:
        """Let a machine that is off, whose disk was taken from this snapshot, sleep on the snapshot's memory.

        The next `start` goes on with it as `load` does, under the identity of the last `prepare`. Until it has proven
        that, nothing is lost by a failure: the machine sleeps, its disk is as it was taken. If the memory can never be
        loaded, SavedMemoryUnusable leaves it off with that disk. Otherwise it sleeps as any machine. The snapshot may
        be removed at once. Idempotent. Raise SnapshotNotFound, SnapshotIncompatible (without memory, of another size,
        or this host lacks what it needs), InvalidMachineState, MachineNotFound, BackendUnavailable.
        """

    @abstractmethod
    def sync_machine(self, machine_id: str) -> None:
        """Wait until all files of a machine that is off or asleep are on the host's disk, as after a loss of power.

        Raise MachineNotFound, BackendUnavailable.
        """
