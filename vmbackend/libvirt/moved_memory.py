"""Saved memory that is a snapshot's: of a machine that moved here, and sleeps until its first start.

It lies where any saved memory does, and a file beside it says what it is. So it counts as the machine's own, but is
loaded as a copy's. The disk stays as it was taken until the memory has woken: whatever an attempt wrote above it is
dropped before the next one. `Chain.taken` says that no attempt has begun. Waking renames the memory, at once and for
good, when the guest has proven its identity.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from vmbackend.errors import BackendUnavailable, SnapshotNotFound
from vmbackend.libvirt.disks import sync_file, write_atomically
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_memory import SavedMemory
from vmbackend.libvirt.snapshot_store import PREFIX
from vmbackend.libvirt.store import StoredMemory

_FACTS = ("needs", "memory_bytes", "memory_crc32", "made_at")


class MovedMemory:
    """The moved memory of one machine. Only meaningful while it has no process, which the caller checks."""

    def __init__(self, files: MachineDir) -> None:
        self._files = files

    @property
    def exists(self) -> bool:
        """Return whether the machine sleeps on a snapshot's memory."""
        return self._files.memory.exists() and self._files.moved.exists()

    @property
    def snapshot_id(self) -> str:
        """Return the snapshot that it is of; empty if that cannot be read."""
        return str((self._read() or {}).get("snapshot", ""))

    def entry(self) -> StoredMemory | None:
        """Return it as an entry of the store; None if what it is cannot be read."""
        raw = self._read()
        try:
            return StoredMemory(self._files.path, **{name: raw[name] for name in _FACTS}) if raw else None
        except (KeyError, TypeError):
            return None

    def link(self, entry: StoredMemory) -> None:
        """Give the machine, which has no memory, that of a snapshot. Raise SnapshotNotFound, BackendUnavailable."""
        SavedMemory(self._files).drop()  # partial, of a save during which the process died
        known = {name: value for name, value in asdict(entry).items() if name in _FACTS}
        content = json.dumps({"snapshot": entry.name.removeprefix(PREFIX), **known})
        try:
            write_atomically(self._files.moved, content.encode())
            sync_file(self._files.moved)
            sync_file(self._files.path)
            # Last, and atomic: from here on the machine sleeps.
            os.link(entry.memory, self._files.memory, follow_symlinks=False)
            sync_file(self._files.path)
        except FileNotFoundError as error:
            raise SnapshotNotFound("The snapshot was removed meanwhile.") from error
        except OSError as error:
            raise BackendUnavailable("The host could not link to the snapshot's memory.") from error

    def mark_woken(self) -> None:
        """Note that the machine has woken: the memory will not be loaded again. Raise BackendUnavailable."""
        try:
            self._files.memory.rename(self._files.woken)
        except OSError as error:
            raise BackendUnavailable("The host could not note that the machine has woken.") from error
        with suppress(OSError):
            # Otherwise a loss of power could bring it back, and what the machine wrote since would be dropped.
            sync_file(self._files.path)

    def forget(self) -> None:
        """Remove what is left of memory that has woken; what stays is removed with the next that is saved."""
        with suppress(BackendUnavailable):
            SavedMemory(self._files).drop()

    def _read(self) -> dict[str, Any] | None:
        try:
            raw = json.loads(self._files.moved.read_bytes())
        except (OSError, ValueError):
            return None
        return raw if isinstance(raw, dict) else None
