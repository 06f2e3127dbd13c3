"""Folders that are being received: what is in them was chosen by another host."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmbackend.errors import BackendUnavailable, TransferRefused
from vmbackend.tool_confinement import give_to_tools

# An entry of the store and an image have some files each.
MAX_ENTRIES = 1000
MAX_DEPTH = 8
_MODES = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o600}


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """The most that may be received: bytes on the disk, and bytes of one file with its holes."""

    max_bytes: int
    max_file_bytes: int


def prepare_folder(into: Path) -> None:
    """Make the folder, with what an earlier attempt left in it, the confined tools'. Raise BackendUnavailable,
    TransferRefused.
    """
    try:
        into.mkdir(mode=0o700, exist_ok=True)
        for path, _ in _entries(into):
            give_to_tools(path)
        give_to_tools(into)
    except OSError as error:
        raise BackendUnavailable(f"The folder for the files cannot be written: {error.strerror}.") from error


def measure_folder(into: Path, limits: FolderLimits) -> int:
    """Return how many bytes it takes on the disk so far. Raise TransferRefused if it holds what is not allowed."""
    try:
        taken = sum(status.st_blocks * 512 for _, status in _entries(into))
    except FileNotFoundError:  # renamed meanwhile
        return 0
    except OSError as error:
        raise TransferRefused(f"The source sent files that cannot be read: {error.strerror}.") from error
    if taken > limits.max_bytes:
        raise TransferRefused("The source sent more than was expected.")
    return taken


def take_over(into: Path, limits: FolderLimits) -> None:
    """Make all that was received this process's own, for it alone. Nothing writes there any more. Raise
    TransferRefused.
    """
    measure_folder(into, limits)
    for path, status in _entries(into):
        _take(path, status.st_mode)
    _take(into, stat.S_IFDIR)


def _take(path: Path, mode: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, _MODES[stat.S_IFMT(mode)])
    finally:
        os.close(descriptor)


def _entries(into: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield files and folders, each after its folder. Raise OSError, and TransferRefused for anything else."""
    count = 0
    found = [(into, 0)]
    while found:
        folder, depth = found.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                path, status = Path(entry.path), entry.stat(follow_symlinks=False)
                if count > MAX_ENTRIES or depth >= MAX_DEPTH:
                    raise TransferRefused("The source sent too many files.")
                _require_plain(status)
                yield path, status
                if stat.S_ISDIR(status.st_mode):
                    found.append((path, depth + 1))


def _require_plain(status: os.stat_result) -> None:
    is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    if not is_plain and not stat.S_ISDIR(status.st_mode):
        raise TransferRefused("The source sent what is neither a file nor a folder.")
