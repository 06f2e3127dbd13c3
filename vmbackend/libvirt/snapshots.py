"""Making of snapshots: a machine's disk becomes a layer of an entry in the store, and the machine goes on above it.

An entry appears last, once the machine writes to a new file: after a death before that the machine has one layer more,
and nothing else is left.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.copies import AfterSnapshot, StoredSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.flattening import Flattener
from vmbackend.libvirt.layers import LAYERS_MAX, add_overlay, freeze_file, has_process, link_layers
from vmbackend.libvirt.needs import snapshot_needs
from vmbackend.libvirt.record import Layer, MachineDir, Record
from vmbackend.libvirt.saved_state import OVERHEAD_MB, SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.snapshot_jobs import SnapshotJob
from vmbackend.libvirt.snapshot_store import PREFIX, SnapshotStore, describe

log = logging.getLogger(__name__)

_FLATTEN_SECONDS = 3600.0
# The accelerator under which no write of a running guest to its memory is missed while that is saved. With emulated
# CPUs (QEMU 7.2) some are, on a busy host: copies had kernels with pages of an earlier instant.
_TRACKS_WRITES = "kvm"
_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request of `Driver.snapshot`."""

    id: str
    after: AfterSnapshot
    memory: bool


class Snapshots:
    """Makes snapshots of one instance's machines."""

    def __init__(
        self,
        settings: LibvirtSettings,
        connection: LibvirtConnection,
        flattener: Flattener,
        saved_state: SavedStateManager,
        store: SnapshotStore,
    ) -> None:
        self._settings = settings
        self._libvirt = connection
        self._access, self._layers = flattener.access, flattener.layers
        self._flattener = flattener
        self._saved_state = saved_state
        self._store = store

    def make(self, target: Any, files: MachineDir, record: Record, asked: SnapshotRequest) -> StoredSnapshot:
        """Make a snapshot; the machine is paused then unless it is to go on. The caller ends its process if asked.

        Raise CapacityExceeded, BackendUnavailable, MachineNotFound, InvalidMachineState.
        """
        state = self._saved_state.state(target, files)
        has_memory = asked.memory and state is not MachineState.OFF
        self._require_room(record, has_memory=has_memory)
        connection = self._libvirt.connection
        if len(record.chain.layers) >= LAYERS_MAX:
            record = self._flattener.flatten(connection, target, files, record, _FLATTEN_SECONDS)
        try:
            with self._goes_on(target, state, asked.after), self._store.store.writing() as aside:
                memory = aside / "memory" if has_memory else None
                # First, as it may read the image's file. A disk alone needs nothing of its host.
                needs = self._needs(target, record) if state is not MachineState.OFF else {}
                layers = record.chain.layers
                if state in (MachineState.RUNNING, MachineState.PAUSED):
                    goes_on = state is MachineState.RUNNING and asked.after is AfterSnapshot.RESUME
                    live = goes_on and needs["accelerator"] == _TRACKS_WRITES
                    self._change_process(target, files, record, memory, live=live, goes_on=goes_on)
                else:
                    self._change_files(target, files, record, memory)
                linked = link_layers(layers, files.path, aside, _name_in_entry)
                return describe(self._store.store.publish(aside, PREFIX + asked.id, needs, linked, record.disk_mb))
        except OSError as error:
            log.exception("machine %s: snapshot", files.id)
            raise BackendUnavailable("The host could not write the snapshot.") from error

    def _change_process(
        self, target: Any, files: MachineDir, record: Record, memory: Path | None, *, live: bool, goes_on: bool
    ) -> None:
        """Save the memory of a process, if there is a file for it, and let it go on in a new disk file.

        `live`: its CPUs run while its memory is written. `goes_on`: they run afterwards.
        """
        former = files.path / record.chain.top.file
        try:
            chain = add_overlay(files, record.chain, record.disk_mb)
            overlay = files.path / chain.top.file
            self._access.give_disk(overlay, record.ip)
            # First: until its process uses it, the new file shows what the former one does.
            files.write_record(_with_layers(record, chain.layers))
            job = SnapshotJob(memory, self._access.path_for(overlay), record.memory_mb, lambda: self._has_room(record))
            job.run(target, live=live)
            freeze_file(former)
            if memory is not None and not goes_on:
                _pause_again(target)
        finally:
            self._layers.settle(self._libvirt.connection, target, files)

    def _change_files(self, target: Any, files: MachineDir, record: Record, memory: Path | None) -> None:
        """Do the same for a machine without a process, whose saved memory, if it has some, stays what it wakes from."""
        former = files.path / record.chain.top.file
        try:
            if memory is not None:
                _link_or_copy(self._saved_state.memory_file(files), memory)
            chain = add_overlay(files, record.chain, record.disk_mb)
            freeze_file(former)
            self._layers.change(self._libvirt.connection, target, files, _with_layers(record, chain.layers))
        except BaseException:
            self._layers.settle(self._libvirt.connection, target, files)
            raise

    @contextmanager
    def _goes_on(self, target: Any, state: MachineState, after: AfterSnapshot) -> Iterator[None]:
        """Stop the CPUs of a running machine that is not to run from the instant on; let them go on after a failure."""
        if state is not MachineState.RUNNING:
            yield
            return
        if after is not AfterSnapshot.RESUME:
            with domain.translate_errors("pause"):
                target.suspend()
        try:
            yield
        except BaseException:
            _resume_if_alive(target)
            raise
        if after is AfterSnapshot.RESUME:
            _resume_if_alive(target)  # the watch has stopped it right when the job had ended

    def _needs(self, target: Any, record: Record) -> dict[str, Any]:
        with domain.translate_errors("describe"):
            return snapshot_needs(self._libvirt.connection, str(target.XMLDesc(_INACTIVE)), record.image)

    def _require_room(self, record: Record, *, has_memory: bool) -> None:
        memory_mb = record.memory_mb if has_memory else 0
        free = disks.free_mb(self._settings.machines_dir) - self._settings.disk_reserve_mb
        if memory_mb + OVERHEAD_MB > free:
            raise CapacityExceeded(
                f"The host lacks space for a snapshot of {memory_mb} MiB of memory ({max(0, free)} MiB are free)."
            )

    def _has_room(self, record: Record) -> bool:
        free = disks.free_mb(self._settings.machines_dir) - self._settings.disk_reserve_mb
        return free > record.memory_mb + OVERHEAD_MB


def _with_layers(record: Record, layers: tuple[Layer, ...]) -> Record:
    return replace(record, chain=replace(record.chain, layers=layers))


def _name_in_entry(number: int, layer: Layer) -> Layer:
    return Layer(f"disk-{number}.{layer.format}", layer.format)


def _link_or_copy(source: Path, target: Path) -> None:
    """Libvirt's own image may lie on another file system. Raises OSError."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copyfile(source, target, follow_symlinks=False)


def _pause_again(target: Any) -> None:
    """Let the CPUs of a paused machine run for a moment: QEMU saves no memory a second time before they have."""
    with domain.translate_errors("pause"):
        target.resume()
        target.suspend()


def _resume_if_alive(target: Any) -> None:
    if has_process(target):
        domain.resume_domain(target)
