"""The snapshots of one instance in its store: which there are, and what keeps their memory from being loaded."""

from __future__ import annotations

from pathlib import Path

from vmbackend.copies import Difference, StoredSnapshot
from vmbackend.errors import BackendUnavailable, SnapshotIncompatible, SnapshotNotFound
from vmbackend.libvirt import domain
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.domainxml import vcpus_for
from vmbackend.libvirt.needs import differences
from vmbackend.libvirt.record import Record
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.store import Store, StoredMemory

PREFIX = "snap_"


class SnapshotStore:
    """Snapshots by the ids that the platform gives them; thread-safe. `store` is shared with boot templates."""

    def __init__(self, settings: LibvirtSettings, connection: LibvirtConnection) -> None:
        self._settings = settings
        self._libvirt = connection
        self.store = Store(settings.machines_dir)

    def find(self, snapshot_id: str) -> StoredSnapshot | None:
        """Return the snapshot; None if there is none."""
        entry = self.store.find(PREFIX + snapshot_id)
        return describe(entry) if entry is not None else None

    def find_entry(self, snapshot_id: str) -> StoredMemory:
        """Return the snapshot's entry. Raise SnapshotNotFound."""
        entry = self.store.find(PREFIX + snapshot_id)
        if entry is None:
            raise SnapshotNotFound("This host has no snapshot of that id.")
        return entry

    def remove(self, snapshot_id: str) -> None:
        """Remove a snapshot. Idempotent. Raise BackendUnavailable."""
        try:
            self.store.remove(PREFIX + snapshot_id)
        except OSError as error:
            raise BackendUnavailable("The host could not remove the snapshot.") from error

    def require_loadable(self, entry: StoredMemory, record: Record, accelerator: str) -> None:
        """Raise SnapshotIncompatible unless this machine can go on with the entry's memory."""
        if not entry.has_memory:
            raise SnapshotIncompatible("The snapshot has no memory: start the machine from its disk.")
        if (entry.needs["cpus"], entry.needs["memory_mb"]) != (vcpus_for(record.cpus), record.memory_mb):
            raise SnapshotIncompatible("The snapshot's memory is of a machine of another size.")
        differs = self.compare(entry.name.removeprefix(PREFIX), accelerator)
        if differs:
            names = ", ".join(each.what for each in differs)
            raise SnapshotIncompatible(f"The snapshot's memory needs what this host does not have now: {names}.")

    def compare(self, snapshot_id: str, accelerator: str) -> tuple[Difference, ...]:
        """Do what `Driver.compare_snapshot` does."""
        entry = self.find_entry(snapshot_id)
        if not entry.has_memory:
            return ()
        try:
            with domain.translate_errors("describe"):
                return differences(entry.needs, self._libvirt.connection, self._settings, accelerator)
        except OSError as error:
            raise BackendUnavailable("The host could not read what the snapshot needs.") from error


def ids_in(machines_dir: Path) -> frozenset[str]:
    """Return the ids of the complete snapshots of a machines' directory."""
    store = Store(machines_dir)
    return frozenset(name.removeprefix(PREFIX) for name in store.names(PREFIX) if store.find(name) is not None)


def describe(entry: StoredMemory) -> StoredSnapshot:
    """Return the snapshot of an entry."""
    return StoredSnapshot(
        id=entry.name.removeprefix(PREFIX),
        memory=entry.has_memory,
        size_bytes=entry.memory_bytes + entry.disk_bytes,
        disk_mb=entry.disk_mb,
        made_at=entry.made_at,
    )
