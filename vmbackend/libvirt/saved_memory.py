"""The saved memory of a machine: one file in its directory, and a seal that tells whether the file is still the same.

libvirt writes the file with a mark of incompleteness in its first bytes and replaces the mark last, so a whole file is
told from a partial one without a word of ours. The seal is written after that. It finds a page that went bad, which the
hypervisor would load as it is, and a writable disk that was used since (somebody started the machine without us), which
no longer fits the memory.
"""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.disks import write_atomically
from vmbackend.libvirt.record import MachineDir

_MAGIC_BYTES = 16
_PARTIAL_MAGIC = b"LibvirtQemudPart"
_CHUNK = 1 << 20


class SavedMemory:
    """Of one machine. Whether its process runs is the caller's to know: only of one that does not does it matter."""

    def __init__(self, files: MachineDir) -> None:
        self.path = files.memory
        self._checksum = files.memory_checksum
        self._disk = files.data_disk

    @property
    def exists(self) -> bool:
        """Whole or partial."""
        return self.path.exists()

    @property
    def is_complete(self) -> bool:
        """Whether it was written to its end. It may be spoilt all the same: `sound` reads it all."""
        if self._checksum.exists():
            return self.exists
        try:
            with self.path.open("rb") as file:
                magic = file.read(_MAGIC_BYTES)
        except OSError:
            return False
        return len(magic) == _MAGIC_BYTES and magic != _PARTIAL_MAGIC

    def write_checksum(self) -> None:
        """Put down what the file holds, once the process is gone. Unsealed by a death, it counts on libvirt's word."""
        try:
            write_atomically(self._checksum, self._compute_checksum())
        except OSError as error:
            if self.exists:
                raise BackendUnavailable("The machine's saved memory could not be read.") from error
            # Destroyed or deleted by another thread meanwhile: nothing to seal.

    def matches_checksum(self) -> bool:
        """Whether file and disk are what was sealed. Reads all of the file."""
        try:
            return not self._checksum.exists() or self._checksum.read_bytes() == self._compute_checksum()
        except OSError:
            return False

    def drop(self) -> None:
        """Remove it. The file goes first: a seal alone is nothing, a file without one would count."""
        try:
            _unlink_and_free_in_background(self.path)
            self._checksum.unlink(missing_ok=True)
        except OSError as error:
            raise BackendUnavailable("The machine's saved memory could not be removed.") from error

    def _compute_checksum(self) -> bytes:
        total, size = 0, 0
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                total = zlib.crc32(chunk, total)
                size += len(chunk)
        used = self._disk.stat().st_mtime_ns if self._disk.exists() else 0
        return f"{size} {total:08x} {used}\n".encode()


def _unlink_and_free_in_background(path: Path) -> None:
    """The name goes now, the room it took in a moment: to free it takes a file system longer than a wake should wait.

    A process that dies in between frees it too. Harmless where there is no such file.
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
    """Where an embedded libvirt keeps what somebody else saved of the domain `name`."""
    return embed_root / "lib" / "qemu" / "save" / f"{name}.save"
