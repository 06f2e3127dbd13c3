"""Directories that the platform writes to in the guest: parents, what the disk has of them, why a write failed."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from contextlib import suppress
from posixpath import dirname, join

import asyncssh
from asyncssh import FXF_READ
from asyncssh.constants import FXE_STATVFS_ST_RDONLY

from vmbackend.errors import BackendError, GuestDiskFull, GuestPathExists, GuestPathInvalid, GuestPathNotFound

from .sftp import FileChannel
from .translate import UnnamedFailure

# For one block: a disk that flushes its cache was observed to block other writes for half a minute.
DATA_SECONDS = 120.0
# ext4 reports a few free blocks if a large write has just failed.
_FULL_BELOW = 1 << 20


async def make_parents(files: FileChannel, client: asyncssh.SFTPClient, directory: str) -> list[str]:
    """Create a directory and its parents; return those that did not exist. Raise GuestPathInvalid if a part is not a
    directory.
    """
    missing: list[str] = []
    while True:
        try:
            found = await files.request(client.stat(directory), directory)
            break
        except GuestPathNotFound:
            if directory == "/":
                raise
            missing.append(directory)
            directory = dirname(directory)
    if not stat.S_ISDIR(found.permissions or 0):
        raise GuestPathInvalid(f"{directory!r} is not a directory.")
    for path in reversed(missing):
        try:
            await files.request(client.mkdir(path, asyncssh.SFTPAttrs(permissions=0o755)), path)
        except UnnamedFailure:
            # Also OpenSSH's error for EEXIST: another writer created it first.
            await _require_directory(files, client, path)
        except GuestPathExists:
            await _require_directory(files, client, path)
    return missing


async def _require_directory(files: FileChannel, client: asyncssh.SFTPClient, path: str) -> None:
    try:
        found = await files.request(client.stat(path), path)
    except GuestPathNotFound as error:
        raise UnnamedFailure(f"{path!r} cannot be created.") from error
    if not stat.S_ISDIR(found.permissions or 0):
        raise GuestPathInvalid(f"{path!r} is not a directory.")


async def flush_directories(files: FileChannel, directories: Iterable[str]) -> None:
    """Write the entries of directories to the disk.

    `/.`: opening anything but a directory fails then; a pipe in its place would block the file server.
    """
    for directory in dict.fromkeys(directories):
        async with files.open_file(join(directory, "."), FXF_READ) as handle:
            await flush_handle(files, handle, directory)


async def flush_handle(files: FileChannel, handle: asyncssh.SFTPClientFile, path: str) -> None:
    """Write a file or directory to the disk. Raise UnnamedFailure if the disk fails or is full.

    File systems that cannot (virtual ones) and servers without the extension are no error.
    """
    try:
        await files.request(handle.fsync(), path, DATA_SECONDS)
    except UnnamedFailure:
        raise
    except GuestPathInvalid:
        return


async def require_absent(files: FileChannel, path: str) -> None:
    """Raise GuestPathExists, also for a link without a target."""
    client = await files.client()
    with suppress(GuestPathNotFound):
        await files.request(client.lstat(path), path)
        raise GuestPathExists(f"{path!r} exists already.")


async def diagnose_failure(files: FileChannel, directory: str) -> BackendError | None:
    """Return the state of the file system as an error, if the server gave no reason."""
    client = await files.client()
    while True:
        try:
            found = await files.request(client.statvfs(directory), directory)
        except GuestPathNotFound:
            if directory == "/":
                return None
            directory = dirname(directory)
        else:
            return _file_system_error(found, directory)


def _file_system_error(found: asyncssh.SFTPVFSAttrs, directory: str) -> BackendError | None:
    # Virtual file systems (/proc) have no blocks, and some have no inodes: those cannot be full.
    if found.flags & FXE_STATVFS_ST_RDONLY:
        return GuestPathInvalid(f"{directory!r} is read-only.")
    if found.blocks and found.bavail * found.frsize < _FULL_BELOW:
        return GuestDiskFull("The machine's disk is full.")
    if found.files and found.favail == 0:
        return GuestDiskFull("The machine's disk has no free inodes.")
    return None
