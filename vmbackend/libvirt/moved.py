"""The libvirt driver's machines that come from another host: `vmbackend.moves` by its parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.copies import Difference, StoredSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import (
    BackendError,
    BackendUnavailable,
    CopyUnproven,
    InvalidMachineState,
    SavedMemoryUnusable,
    SnapshotIncompatible,
    SnapshotNotFound,
)
from vmbackend.libvirt.copied import CopiedMachines
from vmbackend.libvirt.disks import sync_file
from vmbackend.libvirt.domain import is_connection_error, is_shortage
from vmbackend.libvirt.loads import end_unfinished_load
from vmbackend.libvirt.moved_memory import MovedMemory
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.save_file import checksum_of
from vmbackend.libvirt.saved_memory import SavedMemory
from vmbackend.libvirt.store import StoredMemory
from vmbackend.moves import Moved
from vmbackend.power import StartedFrom

log = logging.getLogger(__name__)

# The late news of a process's end was observed to end the next one, too.
_ATTEMPTS = 2
_PAUSE_SECONDS = 1.0


class MovedMachines(CopiedMachines, Moved):
    """`Moved` for a driver that has the parts of `CopiedMachines`."""

    def snapshot_needs(self, snapshot_id: str) -> dict[str, Any]:
        entry = self._snapshot_store.find_entry(snapshot_id)
        return dict(entry.needs) if entry.has_memory else {}

    def compare_needs(self, needs: Mapping[str, Any]) -> tuple[Difference, ...]:
        return self._snapshot_store.compare_needs(needs, self._provisioner.domain_type)

    def snapshot_folder(self, snapshot_id: str) -> Path:
        return self._snapshot_store.find_entry(snapshot_id).path

    def receive_snapshot(self, snapshot_id: str, fetch: Callable[[Path], None], *, size_bytes: int) -> StoredSnapshot:
        return self._snapshot_store.receive(snapshot_id, fetch, size_bytes)

    def begin_receiving(self, snapshot_id: str, fetch: Callable[[Path], None], *, size_bytes: int) -> None:
        self._snapshot_store.begin_receiving(snapshot_id, fetch, size_bytes)

    def drop_received(self, snapshot_id: str) -> None:
        self._snapshot_store.drop_received(snapshot_id)

    def received_ids(self) -> frozenset[str]:
        return self._snapshot_store.received_ids()

    def sleep_on(self, machine_id: str, snapshot_id: str) -> None:
        target, record = self._find_machine(machine_id)
        files = self._inventory.machine_dir(machine_id)
        end_unfinished_load(target, files)
        state, memory = self._saved_state.state(target, files), MovedMemory(files)
        if state is MachineState.ASLEEP and memory.exists and memory.snapshot_id == snapshot_id:
            return
        entry = self._snapshot_store.find_entry(snapshot_id)
        if state is not MachineState.OFF or record.chain.taken != snapshot_id:
            raise InvalidMachineState("The machine is not off, or its disk is not the snapshot's as it was taken.")
        self._snapshot_store.require_loadable(entry, record, self._provisioner.domain_type)
        memory.link(entry)

    def sync_machine(self, machine_id: str) -> None:
        self._find_machine(machine_id)
        folder = self._inventory.machine_dir(machine_id).path
        try:
            # Neither links nor pipes: both are made again.
            files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
            for path in (*files, folder, folder.parent):
                sync_file(path)
        except OSError as error:
            raise BackendUnavailable("The host could not write the machine's files.") from error

    def _wake_moved(self, target: Any, files: MachineDir, record: Record) -> StartedFrom:
        """Start a machine that sleeps on a snapshot's memory. Raise the errors of `Driver.start`.

        Unless it has woken, its disk is as it was taken: at once if that is possible, or before the next attempt.
        """
        entry, failure = MovedMemory(files).entry(), None
        for attempt in range(_ATTEMPTS):
            if entry is None:
                break
            time.sleep(_PAUSE_SECONDS if attempt else 0)
            failure = self._try_moved(entry, target, files, record)
            if failure is None:
                return StartedFrom.MEMORY
            log.warning("machine %s: its memory of another host could not be loaded: %s", files.id, failure)
        self._disks.as_taken(self._libvirt.connection, target, files, record)
        message = self._say_unusable(entry)
        SavedMemory(files).drop()
        raise SavedMemoryUnusable(message) from failure

    def _try_moved(self, entry: StoredMemory, target: Any, files: MachineDir, record: Record) -> BackendError | None:
        """Load the memory once; return why not, if that will stay so. Raise the errors that may pass."""
        connection = self._libvirt.connection
        record = self._disks.as_taken(connection, target, files, record)
        try:
            self._load_moved(entry, target, files, record)
        except BackendError as error:
            if _is_lasting(error, entry):
                return error
            with suppress(BackendError):
                self._disks.as_taken(connection, target, files, files.read_record() or record)
            raise
        MovedMemory(files).forget()
        return None

    def _load_moved(self, entry: StoredMemory, target: Any, files: MachineDir, record: Record) -> None:
        hooks = self._confiner.hooks(files, record, self._attachment.port_of(record))
        try:
            # First: from here on the disk may differ from the memory, also for who finds it after a loss of power.
            self._disks.note_start(files, record)
            for path in (files.record, files.path):
                sync_file(path)
            self._power.load(entry, target, files, hooks, proven=MovedMemory(files).mark_woken)
        except OSError as error:
            raise BackendUnavailable("The host could not load the machine's memory.") from error

    def _say_unusable(self, entry: StoredMemory | None) -> str:
        names = ""
        with suppress(BackendError):
            differs = self.compare_needs(entry.needs) if entry is not None else ()
            names = ", ".join(each.what for each in differs)
        reason = f" The host differs from what it needs: {names}." if names else ""
        return "The machine's memory could not be loaded and was dropped: its next start is a cold one." + reason


def _is_lasting(error: BackendError, entry: StoredMemory) -> bool:
    """Return whether memory was not loaded for a cause that does not pass."""
    if isinstance(error, CopyUnproven):
        return True
    if isinstance(error, (SnapshotIncompatible, SnapshotNotFound)):
        return isinstance(error.__cause__, ValueError) or _is_damaged(entry)
    cause = error.__cause__
    if isinstance(error, BackendUnavailable) and isinstance(cause, libvirt.libvirtError):
        return not is_connection_error(cause) and not is_shortage(cause)
    return isinstance(cause, SystemError)  # a message of the hypervisor with bytes of the memory


def _is_damaged(entry: StoredMemory) -> bool:
    try:
        return checksum_of(entry.memory) != (entry.memory_bytes, entry.memory_crc32)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # it may be read again
