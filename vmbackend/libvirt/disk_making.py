"""The disk of a machine that is off: made, taken from a snapshot, grown, emptied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vmbackend.driver import MachineSpec
from vmbackend.errors import BackendUnavailable, InvalidMachineState, SnapshotNotFound
from vmbackend.libvirt import disks
from vmbackend.libvirt.domain import Domains
from vmbackend.libvirt.flattening import Flattener
from vmbackend.libvirt.layers import (
    Layers,
    add_overlay,
    disk_bytes,
    freeze_file,
    has_process,
    link_layers,
    new_layer,
)
from vmbackend.libvirt.moved_memory import MovedMemory
from vmbackend.libvirt.process import run_tool
from vmbackend.libvirt.record import Chain, MachineDir, Record
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.snapshot_store import PREFIX, SnapshotStore
from vmbackend.libvirt.store import StoredMemory

# The header and tables of a new layer, with room for the record.
_OVERLAY_MB = 8
# A disk is read and written once; a large one takes this long on a slow host.
_CONVERT_SECONDS = 3600.0


class DiskMaker:
    """Makes the disks of one instance's machines. The caller knows that they are off."""

    def __init__(
        self, settings: LibvirtSettings, domains: Domains, layers: Layers, flattener: Flattener, store: SnapshotStore
    ) -> None:
        self._settings = settings
        self.domains = domains
        self._layers = layers
        self._flattener = flattener
        self._store = store

    def check(self, files: MachineDir, spec: MachineSpec) -> None:
        """Make the checks of a preparation. Raise CapacityExceeded, SnapshotNotFound, InvalidMachineState."""
        missing = spec.disk_mb - disk_bytes(files) // disks.MIB
        if spec.snapshot and files.read_record() is None:
            self._find(spec.snapshot, spec.disk_mb)
            missing = _OVERLAY_MB
        if missing > 0:
            disks.require_free_space(self._settings.machines_dir, missing, self._settings.disk_reserve_mb)

    def require_room(self, files: MachineDir, disk_mb: int, snapshot_id: str, *, from_memory: bool) -> None:
        """Do what `Driver.require_room` does: the checks of `check`, `flatten` and `take` of what follows, at once."""
        record, missing = files.read_record(), disk_mb - disk_bytes(files) // disks.MIB
        written = 0
        if record is not None and disk_mb > record.disk_mb and not record.chain.taken:
            written += self._flattener.needed_mb(files, record)
        if snapshot_id:
            entry = self._find(snapshot_id, disk_mb)
            written += _OVERLAY_MB
            if entry.disk_mb < disk_mb and not from_memory:  # it is flattened before it grows
                written += min(entry.disk_bytes // disks.MIB + 1, disk_mb)
        if (needed := max(missing, written)) > 0:
            disks.require_free_space(self._settings.machines_dir, needed, self._settings.disk_reserve_mb)

    def make(self, connection: Any, files: MachineDir, spec: MachineSpec, former: Record | None) -> tuple[int, Chain]:
        """Create the disk of a preparation or grow it; return its size in MiB and its chain. Raises BackendError."""
        if former is None and spec.snapshot:
            return spec.disk_mb, self._link(files, self._find(spec.snapshot, spec.disk_mb), spec.disk_mb)
        if former is None:
            # What is there is from a first preparation that died: it may be partially grown.
            if files.data_disk.exists():
                disks.grow_disk(files.data_disk, spec.disk_mb)
            else:
                disks.create_disk(files.data_disk, spec.disk_mb)
            return spec.disk_mb, Chain()
        if spec.disk_mb > former.disk_mb:
            return spec.disk_mb, self._grow(connection, files, former, spec.disk_mb)
        return former.disk_mb, former.chain

    def take(self, connection: Any, target: Any, files: MachineDir, record: Record, snapshot_id: str) -> None:
        """Do what `Driver.take_disk` does."""
        if record.chain.taken == snapshot_id:
            return
        entry = self._find(snapshot_id, record.disk_mb)
        disks.require_free_space(self._settings.machines_dir, _OVERLAY_MB, self._settings.disk_reserve_mb)
        try:
            chain = self._link(files, entry, record.disk_mb)
            self._layers.change(connection, target, files, replace(record, chain=chain))
        except BaseException:
            self._layers.settle(connection, target, files)
            raise

    def empty(self, connection: Any, target: Any, files: MachineDir, record: Record) -> None:
        """Do what `Driver.reset_disk` does."""
        if record.chain.is_flat:
            disks.reset_disk(files.top_disk(), record.disk_mb)
            if record.chain != (plain := Chain(record.chain.layers)):
                files.write_record(replace(record, chain=plain))
            return
        layer = new_layer("raw")
        disks.reset_disk(files.path / layer.file, record.disk_mb)
        self._layers.change(connection, target, files, replace(record, chain=Chain((layer,))))

    def ready_for_boot(self, connection: Any, target: Any, files: MachineDir, record: Record) -> Record:
        """Make the file system as large as the disk, before a cold start of a machine whose disk was taken.

        Not before: memory of the snapshot still matches the disk as it was taken. Raises BackendError.
        """
        if record.chain.file_system_mb:
            record = self._flattener.flatten(connection, target, files, record, _CONVERT_SECONDS)
            disks.grow_disk(files.path / record.chain.top.file, record.disk_mb)
            record = replace(record, chain=replace(record.chain, file_system_mb=0))
        return self.note_start(files, record)

    def note_start(self, files: MachineDir, record: Record) -> Record:
        """Note that from here on the machine changes a disk that it took; return the record."""
        if record != (started := replace(record, chain=replace(record.chain, taken=""))):
            files.write_record(started)
        return started

    def as_taken(self, connection: Any, target: Any, files: MachineDir, record: Record) -> Record:
        """Return the record of a machine that sleeps on a snapshot's memory, once its disk is as it was taken; no
        effect on any other. What an attempt to load the memory has written is dropped. Raises BackendError.

        There is a layer below the one that is written then, so that this is possible after the next attempt, too.
        """
        memory = MovedMemory(files)
        if not memory.exists or has_process(target):
            return record
        record = files.read_record() or record
        if record.chain.taken and len(record.chain.layers) > 1:
            return record
        disks.require_free_space(self._settings.machines_dir, _OVERLAY_MB, self._settings.disk_reserve_mb)
        below = record.chain.layers[:-1] or record.chain.layers
        chain = replace(record.chain, layers=below, taken=record.chain.taken or memory.snapshot_id)
        try:
            chain = add_overlay(files, chain, record.disk_mb)
            freeze_file(files.path / below[-1].file)
            return self._layers.change(connection, target, files, replace(record, chain=chain))
        except OSError as error:
            self._layers.settle(connection, target, files)
            raise BackendUnavailable("The host could not write the machine's disk.") from error
        except BaseException:
            self._layers.settle(connection, target, files)
            raise

    def _find(self, snapshot_id: str, disk_mb: int) -> StoredMemory:
        entry = self._store.find_entry(snapshot_id)
        if entry.disk_mb > disk_mb:
            raise InvalidMachineState(f"The snapshot's disk has {entry.disk_mb} MiB, the machine's {disk_mb} MiB.")
        return entry

    def _link(self, files: MachineDir, entry: StoredMemory, disk_mb: int) -> Chain:
        """Link the snapshot's layers into the machine's folder; return their chain, with a new layer above."""
        try:
            linked = link_layers(entry.layers, entry.path, files.path, lambda _, layer: new_layer(layer.format))
        except FileNotFoundError as error:
            raise SnapshotNotFound("The snapshot was removed meanwhile.") from error
        except OSError as error:
            raise BackendUnavailable("The host could not link to the snapshot's disk.") from error
        chain = Chain(linked, entry.name.removeprefix(PREFIX), entry.disk_mb if entry.disk_mb < disk_mb else 0)
        return add_overlay(files, chain, disk_mb)

    def _grow(self, connection: Any, files: MachineDir, former: Record, disk_mb: int) -> Chain:
        if former.chain.taken:
            # No guest has written its uppermost file yet. The file system grows with the first cold start.
            path, kind = files.path / former.chain.top.file, former.chain.top.format
            run_tool(["qemu-img", "resize", "-q", "-f", kind, str(path), f"{disk_mb}M"])
            known = former.chain.file_system_mb or former.disk_mb
            return replace(former.chain, file_system_mb=known)
        target = self.domains.find_or_none(connection, former.id)
        record = self._flattener.flatten(connection, target, files, former, _CONVERT_SECONDS)
        disks.grow_disk(files.path / record.chain.top.file, disk_mb)
        return replace(record.chain, file_system_mb=0)
