"""Limits on what a tool may write: the image's maximum size, and the host's free disk space."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vmbackend.errors import CapacityExceeded, ImageTooLarge
from vmbackend.images.types import ImageSettings

ENTRY_BYTES = 1024  # cost of an empty file, against archives of millions of them
_VANISHED = (FileNotFoundError, NotADirectoryError)  # removed or replaced since its folder was read


def image_too_large(settings: ImageSettings) -> ImageTooLarge:
    """Return the error of an image that exceeds the size limit."""
    return ImageTooLarge(f"The image unpacks to more than the {settings.max_unpacked_bytes >> 20} MiB allowed.")


def check_free_space(directory: Path, needed: int, settings: ImageSettings) -> None:
    """Raise CapacityExceeded if `needed` bytes would leave less than `min_free_bytes`, or inodes run out."""
    free = os.statvfs(directory)
    few_inodes = free.f_files > 0 and free.f_favail < free.f_files // 100
    if few_inodes or free.f_bavail * free.f_frsize - needed < settings.min_free_bytes:
        raise CapacityExceeded("The host has too little free disk space for this image.")


def tree_bytes(directory: Path) -> int:
    """Return bytes of a tree on disk; does not follow links, tolerates concurrent changes.

    sys.maxsize if paths in it are too long for the kernel: a tool sees the tree at a shorter path than this process, so
    it can write there what could not be counted here. Raise OSError if the tree cannot be read for another reason.
    """
    total, pending = 0, [str(directory)]
    try:
        while pending:
            total += _folder_bytes(pending.pop(), pending)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return sys.maxsize
        raise
    return total


def _folder_bytes(folder: str, pending: list[str]) -> int:
    """Return bytes of the folder's entries; its folders are appended to `pending`."""
    total = 0
    with suppress(*_VANISHED), _opened_folder(folder) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            with suppress(*_VANISHED):
                total += _entry_bytes(entry)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{folder}/{entry.name}")
    return total


@contextmanager
def _opened_folder(path: str) -> Iterator[int]:
    """Yield a descriptor of a folder. Entries are examined relative to it, so the length of their paths does not
    matter.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _entry_bytes(entry: os.DirEntry[str]) -> int:
    status = entry.stat(follow_symlinks=False)
    return max(ENTRY_BYTES, status.st_blocks * 512 // max(1, status.st_nlink))


class UsageLimit:
    """The check of a directory while a tool fills it; raises, which stops the tool, when a limit is exceeded."""

    CHECK_INTERVAL = 0.3  # seconds

    def __init__(
        self, directory: Path, limit: int, settings: ImageSettings, on_usage: Callable[[int], None] | None = None
    ) -> None:
        self.directory, self._limit, self._settings, self._on_usage = directory, limit, settings, on_usage
        self._next = 0.0

    def check_usage(self) -> None:
        """Raise CapacityExceeded, ImageTooLarge. Walks the tree at most a tenth of the time."""
        started = time.monotonic()
        if started < self._next:
            return
        check_free_space(self.directory, 0, self._settings)
        used = tree_bytes(self.directory)
        self._next = started + max(self.CHECK_INTERVAL, 10 * (time.monotonic() - started))
        if used > self._limit:
            raise image_too_large(self._settings)
        if self._on_usage is not None:
            self._on_usage(used)
