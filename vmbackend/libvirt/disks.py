"""The writable disk of a machine: a sparse raw file that holds one ext4 file system.

`mkfs.ext4` on a sparse file takes 10 ms for 10 GiB when told that the file reads as zeros, which is less than
copying a template, and leaves no inode table for the guest's first minutes to initialise.
"""

from __future__ import annotations

import os
from pathlib import Path

from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.libvirt.process import run_tool

DISK_MIN_MB = 64
DISK_MAX_MB = 1048576
MIB = 1 << 20

# What an empty file system takes of the host while the old disk is still there.
_EMPTY_DISK_MB = 32
# e2fsck: 1 and 2 mean "errors were corrected".
_E2FSCK_OK = (0, 1, 2)
# Checking and growing a disk reads its metadata only, yet a guest can have written much of that.
_CHECK_SECONDS = 600.0


def free_mb(directory: Path) -> int:
    """Room that an unprivileged writer has on the directory's file system."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize // MIB


def total_mb(directory: Path) -> int:
    stat = os.statvfs(directory)
    return stat.f_blocks * stat.f_frsize // MIB


def require_free_space(directory: Path, needed_mb: int, reserve_mb: int) -> None:
    """Raises CapacityExceeded where less than `needed_mb` is free beside the reserve.

    Sparse files promise; this keeps it.
    """
    free = free_mb(directory) - reserve_mb
    if needed_mb > free:
        raise CapacityExceeded(f"The host has no room for a disk of {needed_mb} MiB ({max(0, free)} MiB are free).")


def check_disk_size(size_mb: int) -> None:
    """Raises CapacityExceeded for a size that no host offers."""
    if not DISK_MIN_MB <= size_mb <= DISK_MAX_MB:
        raise CapacityExceeded(f"A disk has between {DISK_MIN_MB} and {DISK_MAX_MB} MiB; {size_mb} were asked for.")


def disk_size_mb(path: Path) -> int:
    """The disk's size as the guest sees it, 0 where there is none."""
    try:
        return path.stat().st_size // MIB
    except FileNotFoundError:
        return 0


def create_disk(path: Path, megabytes: int) -> None:
    """Make the disk with its file system. Written aside: `path` is whole or absent; the aside file is overwritten."""
    aside = path.with_suffix(".new")
    with aside.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(megabytes * MIB)
    options = "assume_storage_prezeroed=1,nodiscard"
    run_tool(["mkfs.ext4", "-q", "-F", "-m", "0", "-L", "data", "-E", options, str(aside)])
    aside.replace(path)


def reset_disk(path: Path, megabytes: int) -> None:
    """Replace the disk by an empty one, in one step.

    Raises CapacityExceeded, BackendUnavailable; the old one stays then.
    """
    require_free_space(path.parent, _EMPTY_DISK_MB, 0)
    try:
        create_disk(path, megabytes)
    except OSError as error:
        raise BackendUnavailable("The host could not write the machine's disk.") from error
    finally:
        path.with_suffix(".new").unlink(missing_ok=True)


def grow_disk(path: Path, megabytes: int) -> None:
    """Enlarge a disk that no process uses. Never shrinks.

    A death between the steps leaves a larger file around the smaller file system: call it again with the same size,
    resize2fs then fills the file. The caller remembers the size only after this returned.
    """
    if disk_size_mb(path) < megabytes:
        os.truncate(path, megabytes * MIB)
    run_tool(["e2fsck", "-f", "-y", str(path)], ok=_E2FSCK_OK, timeout=_CHECK_SECONDS)
    run_tool(["resize2fs", str(path)], timeout=_CHECK_SECONDS)


def direct_io_works(directory: Path) -> bool:
    """Whether the file system takes O_DIRECT (tmpfs and some overlays do not); QEMU's cache=none needs it."""
    probe = directory / ".direct"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    os.close(descriptor)
    return True


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a small file by one only its owner can read; readers see the old or the new one."""
    aside = path.with_name(path.name + ".new")
    descriptor = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        aside.replace(path)
    except OSError as error:
        raise BackendUnavailable("The host could not write the machine's configuration.") from error
