"""Making of snapshots: a machine's disk becomes a layer of an entry in the store, and the machine goes on above it.

An entry appears last, once the machine writes to a new file: after a death before that the machine has one layer more,
and nothing else is left.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from vmbackend.copies import AfterSnapshot, StoredSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, CapacityExceeded, GuestUnreachable
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.convergence import Convergence
from vmbackend.libvirt.flattening import Flattener
from vmbackend.libvirt.held_programs import forget_held, freeze_programs, thaw_programs
from vmbackend.libvirt.layers import LAYERS_MAX, add_overlay, freeze_file, has_process, link_layers
from vmbackend.libvirt.moved_memory import MovedMemory
from vmbackend.libvirt.needs import snapshot_needs
from vmbackend.libvirt.record import Layer, MachineDir, Record
from vmbackend.libvirt.saved_state import OVERHEAD_MB, SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.snapshot_jobs import SnapshotJob
from vmbackend.libvirt.snapshot_store import PREFIX, SnapshotStore, describe

log = logging.getLogger(__name__)

_FLATTEN_SECONDS = 3600.0
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

        Raise CapacityExceeded, BackendUnavailable, MachineNotFound, InvalidMachineState, GuestUnreachable (its programs
        could not be kept still while its memory was saved).
        """
        state = self._saved_state.state(target, files)
        has_memory = asked.memory and state is not MachineState.OFF
        self._require_room(record, has_memory=has_memory)
        record = self._require_layer(target, files, record)
        try:
            with (
                self._goes_on(target, files, state, asked, has_memory=has_memory),
                self._store.store.writing() as aside,
            ):
                memory = aside / "memory" if has_memory else None
                # First, as it may read the image's file. A disk alone needs nothing of its host.
                needs = self._needs(target, files, record) if state is not MachineState.OFF else {}
                layers = self._take(target, files, record, memory, runs=_runs_on(state, asked))
                linked = link_layers(layers, files.path, aside, _name_in_entry)
                return describe(self._store.store.publish(aside, PREFIX + asked.id, needs, linked, record.disk_mb))
        except OSError as error:
            log.exception("machine %s: snapshot", files.id)
            raise BackendUnavailable("The host could not write the snapshot.") from error

    def _require_layer(self, target: Any, files: MachineDir, record: Record) -> Record:
        """Return the machine's record, whose chain has room for one layer more."""
        if len(record.chain.layers) < LAYERS_MAX:
            return record
        return self._flattener.flatten(self._libvirt.connection, target, files, record, _FLATTEN_SECONDS)

    def _take(
        self, target: Any, files: MachineDir, record: Record, memory: Path | None, *, runs: bool
    ) -> tuple[Layer, ...]:
        """Let the machine go on in a new disk file; return the layers before it, which are of the memory's instant."""
        if not has_process(target):
            self._change_files(target, files, record, memory)
        elif memory is not None and runs:
            return self._save_running(target, files, record, memory)
        else:
            self._change_process(target, files, record, memory)
        return record.chain.layers

    def _save_running(self, target: Any, files: MachineDir, record: Record, memory: Path) -> tuple[Layer, ...]:
        """Do the same for a machine that runs on; its programs, or all of it, stand still for the end."""
        if _tracks_changes(target):
            convergence = Convergence(
                target, record.memory_mb, lambda: freeze_programs(files), lambda: self._has_room(record)
            )
            self._change_process(target, files, record, memory, convergence)
            _resume_if_alive(target)  # it may have been stopped right when the job had ended
            if convergence.was_frozen:
                thaw_programs(files)
                return record.chain.layers
            log.warning("machine %s: its programs were frozen too late for a snapshot, which is made again", files.id)
            memory.unlink(missing_ok=True)
            record = self._require_layer(target, files, files.read_record() or record)
        _stop(target, files, has_memory=True)
        self._change_process(target, files, record, memory)
        domain.resume_domain(target)
        thaw_programs(files)
        return record.chain.layers

    def _change_process(
        self,
        target: Any,
        files: MachineDir,
        record: Record,
        memory: Path | None,
        convergence: Convergence | None = None,
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
            with files.changing():
                files.write_record(_with_layers(files.read_record() or record, chain.layers))
            SnapshotJob(memory, self._access.path_for(overlay), record.memory_mb, convergence).run(target)
            freeze_file(former)
            if memory is not None and convergence is None:
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
    def _goes_on(
        self, target: Any, files: MachineDir, state: MachineState, asked: SnapshotRequest, *, has_memory: bool
    ) -> Iterator[None]:
        """Stop programs and CPUs of a machine that is not to run from the instant on; undo it after a failure."""
        try:
            if state is MachineState.PAUSED and has_memory:
                _freeze_paused(target, files)
            elif state is MachineState.RUNNING and asked.after is not AfterSnapshot.RESUME:
                _stop(target, files, has_memory=has_memory)
            yield
            forget_held(files)
        except BaseException:
            if state is MachineState.RUNNING:
                _resume_if_alive(target)
                _thaw_if_frozen(files)
            raise

    def _needs(self, target: Any, files: MachineDir, record: Record) -> dict[str, Any]:
        memory = MovedMemory(files)
        if not has_process(target) and memory.exists and (entry := memory.entry()) is not None:
            return entry.needs  # the guest in it is of the kit and the image of then
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


def _tracks_changes(target: Any) -> bool:
    """Return whether memory can be saved while the machine runs.

    QEMU's emulator loses changes then (seen with 7.2: one snapshot of ten on a busy host, whose copies crash).
    """
    with domain.translate_errors("describe"):
        return ET.fromstring(target.XMLDesc()).get("type") == "kvm"  # noqa: S314 - libvirt's own


def _runs_on(state: MachineState, asked: SnapshotRequest) -> bool:
    return state is MachineState.RUNNING and asked.after is AfterSnapshot.RESUME


def _stop(target: Any, files: MachineDir, *, has_memory: bool) -> None:
    if has_memory:
        freeze_programs(files)
    with domain.translate_errors("pause"):
        target.suspend()


def _freeze_paused(target: Any, files: MachineDir) -> None:
    """Let the CPUs of a paused machine run until its programs are frozen."""
    try:
        freeze_programs(files, lambda: domain.resume_domain(target))
    finally:
        with domain.translate_errors("pause"):
            target.suspend()


def _pause_again(target: Any) -> None:
    """Let the CPUs of a paused machine run for a moment, without programs: QEMU saves no memory twice before that."""
    with domain.translate_errors("pause"):
        target.resume()
        target.suspend()


def _resume_if_alive(target: Any) -> None:
    if has_process(target):
        domain.resume_domain(target)


def _thaw_if_frozen(files: MachineDir) -> None:
    with suppress(GuestUnreachable):
        thaw_programs(files)
