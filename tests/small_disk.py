"""A small file system of its own, which a test may fill: never the host's disk. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SMALL_DISK = "mvd-"  # how the names of folders begin on which one is mounted for an instance
_MANY_NAMES = 1 << 20
_SIZES = (1 << 24, 1 << 20, 1 << 16, 1 << 12)


class SmallDisk:
    """The file system that is mounted on `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filling = folder / "filling"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave_mb: int = 0) -> None:
        """What another program of the host does: allocate all that is left but so many MiB. May be repeated.

        What is given back in the meantime stays free.
        """
        descriptor = os.open(self._filling, os.O_WRONLY | os.O_CREAT, 0o600)
        wanted = self.free_bytes - (leave_mb << 20)
        try:
            for size in _SIZES:
                with suppress(OSError):
                    while wanted >= size:
                        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size)
                        wanted -= size
        finally:
            os.close(descriptor)

    def fill_names(self) -> None:
        """No file, folder or link can be made any more, though there is room for bytes."""
        found = os.statvfs(self.folder)
        self._limit_names(found.f_files - found.f_ffree)

    def _limit_names(self, most: int) -> None:
        options = f"remount,nr_inodes={most}"
        subprocess.run(["mount", "-o", options, str(self.folder)], check=True, timeout=10)

    def make_room(self) -> None:
        self._filling.unlink(missing_ok=True)
        self._limit_names(_MANY_NAMES)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a file system of that size on `folder`; unmounted at the end, also where something still uses it."""
    options = f"size={megabytes}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "mvm-test", str(folder)], check=True, timeout=10)
    try:
        yield SmallDisk(folder)
    finally:
        unmount(folder)


def unmount(folder: Path) -> None:
    """Unmount what is mounted there, if anything is."""
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=10)
