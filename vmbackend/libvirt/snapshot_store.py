"""The snapshots of one instance in its store: which there are, and what keeps their memory from being loaded."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vmbackend.copies import Difference, StoredSnapshot
from vmbackend.errors import BackendUnavailable, SnapshotIncompatible, SnapshotNotFound
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.domainxml import vcpus_for
from vmbackend.libvirt.needs import differences
from vmbackend.libvirt.received import accept_files, read_needs
from vmbackend.libvirt.record import Record
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.store import Store, StoredMemory
from vmbackend.plain_files import plain_bytes

log = logging.getLogger(__name__)

PREFIX = "snap_"
_ID = re.compile(r"[a-z0-9_]{1,80}")


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
        return self._differences(entry.needs, accelerator)

    def compare_needs(self, needs: Mapping[str, Any], accelerator: str) -> tuple[Difference, ...]:
        """Do what `Driver.compare_needs` does."""
        if isinstance(needs, Mapping) and not needs:
            return ()
        try:
            known = read_needs(needs)
        except ValueError:
            return (Difference("description of the memory", "another version's", "this version's"),)
        return self._differences(known, accelerator)

    def receive(self, snapshot_id: str, fetch: Callable[[Path], None], size_bytes: int) -> StoredSnapshot:
        """Do what `Driver.receive_snapshot` does."""
        if (made := self.find(snapshot_id)) is not None:
            return made
        self.begin_receiving(snapshot_id, fetch, size_bytes)
        return describe(self._publish_incoming(snapshot_id))

    def begin_receiving(self, snapshot_id: str, fetch: Callable[[Path], None], size_bytes: int) -> None:
        """Do what `Driver.begin_receiving` does."""
        if not _ID.fullmatch(snapshot_id):
            raise SnapshotIncompatible("No snapshot has such an id.")
        fetch(self._make_incoming(snapshot_id, size_bytes))

    def drop_received(self, snapshot_id: str) -> None:
        """Do what `Driver.drop_received` does."""
        if _ID.fullmatch(snapshot_id) and not self.store.drop_incoming(PREFIX + snapshot_id):
            raise BackendUnavailable("The host could not remove files of another host.")

    def received_ids(self) -> frozenset[str]:
        """Do what `Driver.received_ids` does."""
        return frozenset(name.removeprefix(PREFIX) for name in self.store.incoming_names(PREFIX))

    def _make_incoming(self, snapshot_id: str, size_bytes: int) -> Path:
        """Return the folder for the files. Raise CapacityExceeded unless the host has room for what is not there."""
        folder = self.store.incoming(PREFIX + snapshot_id)
        try:
            there = plain_bytes(folder) if folder.exists() else 0
            needed_mb = max(0, size_bytes - there) // disks.MIB + 1
            disks.require_free_space(self._settings.machines_dir, needed_mb, self._settings.disk_reserve_mb)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise BackendUnavailable("The host could not make a folder for the snapshot.") from error
        return folder

    def _publish_incoming(self, snapshot_id: str) -> StoredMemory:
        """Make what is in the folder a snapshot, or remove it. Raise SnapshotIncompatible, BackendUnavailable."""
        name = PREFIX + snapshot_id
        try:
            folder = self.store.incoming(name)
            found = accept_files(folder)
            return self.store.publish(folder, name, found.needs, found.layers, found.disk_mb, made_at=found.made_at)
        except ValueError as error:
            log.warning("snapshot %s of another host: %s", snapshot_id, error)
            self.drop_received(snapshot_id)
            raise SnapshotIncompatible(f"The other host did not send a snapshot of this version: {error}.") from error
        except OSError as error:
            log.exception("snapshot %s of another host", snapshot_id)
            raise BackendUnavailable("The host could not write the snapshot of another host.") from error

    def _differences(self, needs: dict[str, Any], accelerator: str) -> tuple[Difference, ...]:
        try:
            with domain.translate_errors("describe"):
                return differences(needs, self._libvirt.connection, self._settings, accelerator)
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
