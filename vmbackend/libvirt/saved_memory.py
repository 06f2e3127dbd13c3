"""The saved memory of a machine: a file in its directory, and a checksum that detects changes.

libvirt writes the file with a magic number for incomplete files and replaces that last, which distinguishes a complete
file from a partial one. The checksum is written after that. It detects corruption, which the hypervisor would load
unnoticed, and a writable disk that was modified since (by a start outside of the platform) and no longer matches the
memory.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.disks import write_atomically
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.save_file import checksum_of

_MAGIC_BYTES = 16
_PARTIAL_MAGIC = b"LibvirtQemudPart"


class SavedMemory:
    """The saved memory of one machine. Only meaningful while the machine has no process, which the caller checks."""

    def __init__(self, files: MachineDir) -> None:
        self.path = files.memory
        self._checksum = files.memory_checksum
        self._files = files

    @property
    def exists(self) -> bool:
        """Return whether there is a file, complete or partial."""
        return self.path.exists()

    @property
    def has_checksum(self) -> bool:
        """Return whether a checksum was stored: a file without one is from a death in between, or older."""
        return self._checksum.exists()

    @property
    def is_complete(self) -> bool:
        """Return whether it was written completely. It may still be corrupt, see `matches_checksum`."""
        if self._checksum.exists():
            return self.exists
        try:
            with self.path.open("rb") as file:
                magic = file.read(_MAGIC_BYTES)
        except OSError:
            return False
        return len(magic) == _MAGIC_BYTES and magic != _PARTIAL_MAGIC

    def write_checksum(self) -> None:
        """Store the checksum, once the process has ended.

        After a death before this, the file is accepted without one.
        """
        try:
            write_atomically(self._checksum, self._compute_checksum())
        except OSError as error:
            if self.exists:
                raise BackendUnavailable("The machine's saved memory could not be read.") from error
            # Otherwise another thread destroyed or deleted the machine.

    def matches_checksum(self) -> bool:
        """Return whether file and disk are unchanged since `write_checksum`. Reads the whole file."""
        try:
            return not self._checksum.exists() or self._checksum.read_bytes() == self._compute_checksum()
        except OSError:
            return False

    def drop(self) -> None:
        """Remove it. The file first: those beside it are ignored without it, a file without a checksum is accepted."""
        try:
            _unlink_and_free_in_background(self.path)
            self._checksum.unlink(missing_ok=True)
            self._files.moved.unlink(missing_ok=True)
            _unlink_and_free_in_background(self._files.woken)
        except OSError as error:
            raise BackendUnavailable("The machine's saved memory could not be removed.") from error

    def _compute_checksum(self) -> bytes:
        size, total = checksum_of(self.path)
        disk = self._files.top_disk()
        used = disk.stat().st_mtime_ns if disk.exists() else 0
        return f"{size} {total:08x} {used}\n".encode()


def _unlink_and_free_in_background(path: Path) -> None:
    """Remove the name now and free the space in the background, which takes longer than a wake should wait.

    The space is also freed if the process dies. Idempotent.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        path.unlink(missing_ok=True)
    finally:
        threading.Thread(target=os.close, args=(fd,), name="free-memory-file").start()


def managed_image(embed_root: Path, name: str) -> Path:
    """Return the path of an embedded libvirt's managed save image of the domain `name`."""
    return embed_root / "lib" / "qemu" / "save" / f"{name}.save"
