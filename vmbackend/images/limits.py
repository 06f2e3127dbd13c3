"""Limits on what a tool may write: the image's maximum size, and the host's free disk space."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from vmbackend.errors import CapacityExceeded, ImageTooLarge
from vmbackend.images.types import ImageSettings

ENTRY_BYTES = 1024  # cost of an empty file, against archives of millions of them


def image_too_large(settings: ImageSettings) -> ImageTooLarge:
    """The error of an image that exceeds the size limit."""
    return ImageTooLarge(f"The image unpacks to more than the {settings.max_unpacked_bytes >> 20} MiB allowed.")


def check_free_space(directory: Path, needed: int, settings: ImageSettings) -> None:
    """Raises CapacityExceeded if `needed` bytes would leave less than `min_free_bytes`, or inodes run out."""
    free = os.statvfs(directory)
    few_inodes = free.f_files > 0 and free.f_favail < free.f_files // 100
    if few_inodes or free.f_bavail * free.f_frsize - needed < settings.min_free_bytes:
        raise CapacityExceeded("The host has too little free disk space for this image.")


def tree_bytes(directory: Path) -> int:
    """Bytes of a tree on disk; does not follow links, tolerates concurrent changes."""
    total, pending = 0, [str(directory)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += _entry_bytes(entry)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            continue
    return total


def _entry_bytes(entry: os.DirEntry[str]) -> int:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    return max(ENTRY_BYTES, status.st_blocks * 512 // max(1, status.st_nlink))


class UsageLimit:
    """Checks a directory while a tool fills it; raises, which stops the tool, when a limit is exceeded."""

    CHECK_INTERVAL = 0.3  # seconds

    def __init__(
        self, directory: Path, limit: int, settings: ImageSettings, on_usage: Callable[[int], None] | None = None
    ) -> None:
        self.directory, self._limit, self._settings, self._on_usage = directory, limit, settings, on_usage
        self._next = 0.0

    def check_usage(self) -> None:
        """Raises CapacityExceeded, ImageTooLarge. Walks the tree at most a tenth of the time."""
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
