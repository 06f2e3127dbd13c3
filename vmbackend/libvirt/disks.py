"""The writable disk of a machine: a sparse raw file that holds one ext4 file system.

`mkfs.ext4` on a sparse file takes 10 ms for 10 GiB with the option that the file reads as zeros, which is less than
copying a template, and leaves no lazy initialization of inode tables to the guest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.libvirt.process import run_tool
from vmbackend.tool_confinement import TOOL_UID, ToolConfinement, confined_command

DISK_MIN_MB = 64
DISK_MAX_MB = 1048576
MIB = 1 << 20

# The space that an empty file system needs on the host while the old disk still exists.
_EMPTY_DISK_MB = 32
# In one confined shell, as a failure to confine ends with 1, too. e2fsck: 1 and 2 mean "errors were corrected". It
# prints 20 KB for each 12 bytes of a hostile directory, a character at a time. The file grows after it: a guest can
# make it fail as often as it likes.
_CHECK_AND_GROW = """
e2fsck -f -y /disk > /dev/null 2>&1
code=$?
[ $code -le 2 ] || exit $code
truncate -s "$1" /disk && exec resize2fs /disk
"""
# Checking and growing read metadata only, but a guest can have created much of it.
_CHECK_SECONDS = 1200.0


def free_mb(directory: Path) -> int:
    """Free MiB of the directory's file system for an unprivileged writer."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize // MIB


def total_mb(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize // MIB


def require_free_space(directory: Path, needed_mb: int, reserve_mb: int) -> None:
    """Raise CapacityExceeded unless `needed_mb` MiB are free besides the reserve.

    Sparse files do not reserve space.
    """
    free = free_mb(directory) - reserve_mb
    if needed_mb > free:
        raise CapacityExceeded(f"The host lacks space for a disk of {needed_mb} MiB ({max(0, free)} MiB are free).")


def check_disk_size(size_mb: int) -> None:
    """Raise CapacityExceeded for an unsupported size."""
    if not DISK_MIN_MB <= size_mb <= DISK_MAX_MB:
        raise CapacityExceeded(f"A disk has between {DISK_MIN_MB} and {DISK_MAX_MB} MiB; {size_mb} MiB were requested.")


def disk_size_mb(path: Path) -> int:
    """Return the disk's size in MiB; 0 if it does not exist."""
    try:
        return path.stat().st_size // MIB
    except FileNotFoundError:
        return 0


def overlay_overhead_mb(disk_mb: int) -> int:
    """Return the MiB that a qcow2 file of a disk of this size has besides its data, rounded up."""
    return disk_mb // 4096 + 8


def allocated_bytes(path: Path) -> int:
    """Return the bytes that the sparse file occupies; 0 if it does not exist."""
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


def create_disk(path: Path, megabytes: int) -> None:
    """Create the disk with its file system. Atomic: `path` is complete or absent; a temporary file may remain."""
    aside = path.with_suffix(".new")
    with aside.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(megabytes * MIB)
    options = "assume_storage_prezeroed=1,nodiscard"
    run_tool(["mkfs.ext4", "-q", "-F", "-m", "0", "-L", "data", "-E", options, str(aside)])
    aside.replace(path)


def reset_disk(path: Path, megabytes: int) -> None:
    """Replace the disk by an empty one, atomically. On CapacityExceeded or BackendUnavailable the old one stays."""
    require_free_space(path.parent, _EMPTY_DISK_MB, 0)
    try:
        create_disk(path, megabytes)
    except OSError as error:
        raise BackendUnavailable("The host could not write the machine's disk.") from error
    finally:
        path.with_suffix(".new").unlink(missing_ok=True)


def grow_disk(path: Path, megabytes: int) -> None:
    """Grow a disk that no process uses, with its file system. Never shrinks.

    If the process dies in between, the file is larger than its file system: calling again with the same size completes
    the resize. The caller records the size only after this returned. On BackendUnavailable (also for a file system that
    the tools refuse) the disk has its former size, repaired as far as they came.
    """
    former = path.stat().st_size
    size = max(former, megabytes * MIB)
    # A guest wrote what these tools read.
    confinement = ToolConfinement(writable=((path, "/disk"),))
    argv = ["sh", "-c", _CHECK_AND_GROW, "grow", str(size)]
    with owned_by_tools(path), confined_command(argv, confinement, max_file_bytes=size) as (command, descriptors):
        try:
            run_tool(command, name="e2fsck or resize2fs", timeout=_CHECK_SECONDS, descriptors=descriptors)
        except BackendUnavailable:
            if path.stat().st_size > former:
                # Otherwise the guest would have the space without its being counted.
                os.truncate(path, max(former, min(size, _file_system_bytes(path))))
            raise


def _file_system_bytes(path: Path) -> int:
    """Return the size that the file system's superblock has. resize2fs, which starts on a checked file system only,
    writes it last.
    """
    with path.open("rb") as disk:
        disk.seek(1024)
        superblock = disk.read(1024).ljust(1024, b"\0")
    low, scale, high = (int.from_bytes(superblock[place : place + 4], "little") for place in (4, 24, 0x150))
    return (high << 32 | low) << (10 + min(scale, 6))


@contextmanager
def owned_by_tools(disk: Path) -> Iterator[None]:
    """Give a disk to the user of confined tools for the block.

    If the process dies within it, that user stays the owner, which changes nothing for this function; the start of a
    machine sets the owner that it needs.
    """
    descriptor = os.open(disk, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        former = os.fstat(descriptor)
        if not stat.S_ISREG(former.st_mode):
            raise BackendUnavailable("The machine's disk is not a file.")
        os.fchown(descriptor, TOOL_UID, TOOL_UID)
        try:
            yield
        finally:
            os.fchown(descriptor, former.st_uid, former.st_gid)
    finally:
        os.close(descriptor)


@contextmanager
def readable_by_tools(paths: Sequence[Path]) -> Iterator[None]:
    """Let the user of confined tools read layers of a disk for the block: the top one is its machine's own."""
    with ExitStack() as stack:
        for path in paths:
            if not path.lstat().st_mode & stat.S_IROTH:
                stack.enter_context(owned_by_tools(path))
        yield


def sync_file(path: Path) -> None:
    """Wait until all of a file is on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def direct_io_works(directory: Path) -> bool:
    """Return whether the file system supports O_DIRECT, which QEMU's cache=none needs (tmpfs and some overlays do
    not).
    """
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
    """Replace a small file atomically by one that only its owner can read.

    Raise BackendUnavailable; the former file is there as it was, and nothing else.
    """
    aside = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)  # of a full disk: the beginning of it
        raise BackendUnavailable("The host could not write the machine's configuration.") from error
