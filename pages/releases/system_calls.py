"""System calls that Python's `os` does not have, and flushing."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def rename_without_replacing(old: Path, new: Path) -> None:
    """Rename in one step.

    Raise FileExistsError if the new name is taken, which os.rename would replace, and OSError.
    """
    # os.rename does the same; tests that kill a process before each change count these.
    sys.audit("os.rename", str(old), str(new), -1, -1)
    _checked(_LIBC.renameat2(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _RENAME_NOREPLACE), new)


def file_system_sync(path: Path) -> None:
    """Flush all writes to the file system of `path`: for ten thousand files far quicker than fsync of each."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_LIBC.syncfs(fd), path)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Flush a file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_replace(path: Path, data: bytes) -> None:
    """Write a file beside `path` and rename it over it, both flushed.

    A process that dies leaves `<path>.new`, which the next call replaces.
    """
    beside = path.with_name(path.name + ".new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    beside.replace(path)
    sync_folder(path.parent)


def _checked(result: int, path: Path) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
