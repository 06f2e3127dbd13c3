"""Part files of uploads: bytes in order, by one writer at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from cdn.storage.errors import StorageUnavailable
from cdn.storage.keys import checked_id
from cdn.storage.places import FILE_MODE, cdn_folder, part_path, require_room

# Bytes between two checks of the room that is left.
_ROOM_BYTES = 32 << 20
_HASHED_AT_ONCE = 1 << 20
_OPENED = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class PartBusy(Exception):
    """Error of a part that another process, or another request of this one, writes."""


@dataclass(frozen=True, slots=True)
class PartFound:
    """Part file. `age`: seconds since it was written to; never negative."""

    file_id: str
    size: int
    age: float


class PartFile:
    """Open part file, held exclusively, for one thread at a time.

    A process that was stopped for long cannot write into a file that another one has completed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._room_at = 0
        self.size = 0

    @classmethod
    def open(cls, file_id: str) -> Self:
        """Return the part of a file, created if it is missing. Raise PartBusy, StorageUnavailable."""
        path = part_path(file_id)
        with _disk_errors():
            while True:
                fd = os.open(path, _OPENED, FILE_MODE)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(fd)
                    raise PartBusy from None
                if os.fstat(fd).st_nlink:
                    made = cls(fd)
                    made.size = os.fstat(fd).st_size
                    return made
                os.close(fd)  # removed in between

    def cut(self, size: int) -> None:
        """Drop the bytes beyond `size`, and go on from there. Raise StorageUnavailable."""
        with _disk_errors():
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        self.size = self._room_at = size
        require_room(self._fd)

    def write(self, data: bytes) -> None:
        """Append. Raise StorageUnavailable: `size` says how much of it was written."""
        if self.size - self._room_at >= _ROOM_BYTES:
            require_room(self._fd)
            self._room_at = self.size
        left = memoryview(data)
        with _disk_errors():
            while left:
                count = os.write(self._fd, left)
                self.size += count
                left = left[count:]

    def sync(self) -> None:
        """Flush. Raise StorageUnavailable."""
        with _disk_errors():
            os.fdatasync(self._fd)

    def sha256(self, stopped: Callable[[], bool] = lambda: False) -> str:
        """Return the digest of the whole part, read again; empty if `stopped` says so before the end.

        Raise StorageUnavailable.
        """
        made, offset = hashlib.sha256(), 0
        with _disk_errors():
            while data := os.pread(self._fd, _HASHED_AT_ONCE, offset):
                made.update(data)
                offset += len(data)
                if stopped():
                    return ""
        return made.hexdigest()

    def close(self) -> None:
        """Close the file; the lock ends with it. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def remove_part(file_id: str) -> None:
    """Remove the part of a file. Idempotent. Raise OSError."""
    part_path(file_id).unlink(missing_ok=True)


def list_parts() -> Iterator[PartFound]:
    """Yield every part file, for sweeps; other files are left out."""
    now = time.time()
    for entry in os.scandir(cdn_folder("parts")):
        with suppress(FileNotFoundError, ValueError):
            found = entry.stat(follow_symlinks=False)
            yield PartFound(checked_id(entry.name), found.st_size, max(0.0, now - found.st_mtime))


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise any error of the disk as that of the API."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable from error
