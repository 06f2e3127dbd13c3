"""Reading and writing whole files over SFTP: several requests in flight, constant memory."""

from __future__ import annotations

import asyncio
import secrets
import stat
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from posixpath import basename, dirname, join
from typing import Any

import asyncssh
from asyncssh import FXF_CREAT, FXF_EXCL, FXF_READ, FXF_WRITE
from asyncssh.constants import FXE_STATVFS_ST_RDONLY

from vmbackend.errors import BackendError, GuestDiskFull, GuestPathInvalid, GuestPathNotFound

from .sftp import FileChannel
from .translate import GuestPathExists, UnnamedFailure

# A little less than the longest message of OpenSSH's server: larger ones cost less of both sides' time.
BLOCK = 240 * 1024
DEPTH = 8  # requests in flight: at most 2 MiB of data per transfer
# For one block: a disk that writes out what it was given before lets nobody else for half a minute, and was seen to.
DATA_SECONDS = 120.0
DEFAULT_MODE = 0o644
PARTIAL = ".partial-"
# ext4 reports a few free blocks where a large write has just failed.
_FULL_BELOW = 1 << 20


async def read_file(files: FileChannel, path: str, offset: int, length: int | None) -> AsyncGenerator[bytes, None]:
    """Chunks of a regular file that a disk holds. Raises GuestPathNotFound, GuestPathInvalid.

    The caller has seen that it is one: opening a fifo blocks the guest's whole file server. It is looked at again for
    one that was exchanged in between.
    """
    async with files.open_file(path, FXF_READ) as handle:
        _require_regular(await files.request(handle.stat(), path), path)

        async def fetch(position: int, size: int) -> bytes:
            return await files.request(handle.read(size, position), path, DATA_SECONDS)

        end = None if length is None else offset + length
        blocks = _pipeline(fetch, offset, end)
        try:
            async for block in blocks:
                yield block
        finally:
            await blocks.aclose()


async def _pipeline(fetch: Callable[[int, int], Awaitable[bytes]], offset: int, end: int | None) -> Any:
    """Blocks in order, until an empty one. Sizes are not believed: files of /proc say 0 and files grow.

    The number of requests in flight doubles with each full block, so that a small file costs two requests. After a
    short block those in flight ask for the wrong places, and are dropped.
    """
    pending: deque[tuple[int, asyncio.Task[bytes]]] = deque()
    position = ahead = offset
    depth = 1
    try:
        while True:
            while len(pending) < depth and (end is None or ahead < end):
                size = BLOCK if end is None else min(BLOCK, end - ahead)
                pending.append((size, asyncio.ensure_future(fetch(ahead, size))))
                ahead += size
            if not pending:
                return
            size, task = pending.popleft()
            block = await task
            if not block:
                return
            yield block
            position += len(block)
            if len(block) < size:
                await _discard(task for _, task in pending)
                pending.clear()
                ahead = position
            else:
                depth = min(depth * 2, DEPTH)
    finally:
        await _discard(task for _, task in pending)


async def _discard(tasks: Any) -> None:
    """Cancel and await, so that no failure is left unread."""
    listed = list(tasks)
    for task in listed:
        task.cancel()
    await asyncio.gather(*listed, return_exceptions=True)


async def write_file(files: FileChannel, path: str, chunks: AsyncIterator[bytes], mode: int | None) -> int:
    """Write beside and rename; see GuestSession.write."""
    client = await files.client()
    target = await _final_path(files, client, path)
    before = await _existing(files, client, target)
    parent = dirname(target)
    partial = join(parent, PARTIAL + secrets.token_hex(8))
    async with files.tracked_partial(partial):
        try:
            await make_parents(files, client, parent)
            size = await _write_partial(files, partial, chunks, _attributes(before, mode))
            await files.request(client.posix_rename(partial, target), path)
        except (UnnamedFailure, GuestPathNotFound) as error:
            # Asked before the partial file, which may be what fills the disk, is removed.
            reason = await _diagnose_failure(files, parent)
            await _remove(files, partial)
            raise reason or GuestPathInvalid(f"The machine takes no file at {path!r}.") from error
        except BaseException:
            await _remove(files, partial)
            raise
    return size


async def make_parents(files: FileChannel, client: asyncssh.SFTPClient, directory: str) -> None:
    """Make a directory and those above it. Raises GuestPathInvalid where a part is no directory."""
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
        raise GuestPathInvalid(f"{directory!r} is no directory.")
    for path in reversed(missing):
        try:
            await files.request(client.mkdir(path, asyncssh.SFTPAttrs(permissions=0o755)), path)
        except UnnamedFailure:
            # OpenSSH's word for EEXIST too: another writer made it first, which is as good.
            await _require_directory(files, client, path)
        except GuestPathExists:
            await _require_directory(files, client, path)


async def _require_directory(files: FileChannel, client: asyncssh.SFTPClient, path: str) -> None:
    try:
        found = await files.request(client.stat(path), path)
    except GuestPathNotFound as error:
        raise UnnamedFailure(f"{path!r} cannot be made.") from error
    if not stat.S_ISDIR(found.permissions or 0):
        raise GuestPathInvalid(f"{path!r} is no directory.")


async def _final_path(files: FileChannel, client: asyncssh.SFTPClient, path: str) -> str:
    """Where a symbolic link leads, so that writing through it does not replace the link."""
    if basename(path) in ("", ".", ".."):
        raise GuestPathInvalid(f"{path!r} names a directory.")
    try:
        found = await files.request(client.lstat(path), path)
    except GuestPathNotFound:
        return path
    if not stat.S_ISLNK(found.permissions or 0):
        return path
    try:
        resolved = await files.request(client.realpath(path), path)
    except GuestPathNotFound as error:
        raise GuestPathInvalid(f"{path!r} is a symbolic link that leads nowhere.") from error
    return str(resolved)


async def _existing(files: FileChannel, client: asyncssh.SFTPClient, path: str) -> asyncssh.SFTPAttrs | None:
    try:
        found = await files.request(client.lstat(path), path)
    except GuestPathNotFound:
        return None
    _require_regular(found, path)
    return found


def _attributes(before: asyncssh.SFTPAttrs | None, mode: int | None) -> tuple[asyncssh.SFTPAttrs, ...]:
    """What is set on the partial file, in order: the owner first, since a change of owner clears setuid bits."""
    permissions = mode
    if permissions is None:
        permissions = DEFAULT_MODE if before is None else stat.S_IMODE(before.permissions or DEFAULT_MODE)
    steps = [asyncssh.SFTPAttrs(permissions=permissions & 0o7777)]
    if before is not None and before.uid is not None and before.gid is not None:
        steps.insert(0, asyncssh.SFTPAttrs(uid=before.uid, gid=before.gid))
    return tuple(steps)


async def _write_partial(
    files: FileChannel,
    partial: str,
    chunks: AsyncIterator[bytes],
    attributes: tuple[asyncssh.SFTPAttrs, ...],
) -> int:
    created = asyncssh.SFTPAttrs(permissions=0o600)
    async with files.open_file(partial, FXF_WRITE | FXF_CREAT | FXF_EXCL, created) as handle:
        size = await _send_chunks(files, handle, chunks, partial)
        for step in attributes:
            await files.request(handle.setstat(step), partial)
        with suppress(GuestPathInvalid):  # a server without the extension; the rename is atomic all the same
            await files.request(handle.fsync(), partial, DATA_SECONDS)
    return size


async def _send_chunks(
    files: FileChannel, handle: asyncssh.SFTPClientFile, chunks: AsyncIterator[bytes], path: str
) -> int:
    """Send the chunks, at most DEPTH blocks unanswered.

    The caller's iterator is awaited outside our boundary.
    """

    async def send(block: bytes, at: int) -> int:
        return await files.request(handle.write(block, at), path, DATA_SECONDS)

    pending: deque[asyncio.Task[int]] = deque()
    position = 0
    try:
        async for chunk in chunks:
            for start in range(0, len(chunk), BLOCK):
                block = chunk[start : start + BLOCK]
                pending.append(asyncio.ensure_future(send(block, position)))
                position += len(block)
                if len(pending) >= DEPTH:
                    await pending.popleft()
        while pending:
            await pending.popleft()
    finally:
        await _discard(pending)
    return position


async def _remove(files: FileChannel, partial: str) -> None:
    """Best effort: a guest that is gone keeps a file whose name says what it is."""

    async def remove() -> None:
        with suppress(BackendError):
            client = await files.client()
            await files.request(client.remove(partial), partial)

    # Shielded, so that a caller who goes away in the middle still leaves nothing behind.
    await asyncio.shield(asyncio.ensure_future(remove()))


async def _diagnose_failure(files: FileChannel, directory: str) -> BackendError | None:
    """What the file system says of itself where its server gave no reason."""
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
    # File systems that are none (/proc) have no blocks, and some have no inodes: those cannot run out.
    if found.flags & FXE_STATVFS_ST_RDONLY:
        return GuestPathInvalid(f"{directory!r} can only be read.")
    if found.blocks and found.bavail * found.frsize < _FULL_BELOW:
        return GuestDiskFull("The machine's disk is full.")
    if found.files and found.favail == 0:
        return GuestDiskFull("The machine's disk has no room for another file.")
    return None


def _require_regular(found: asyncssh.SFTPAttrs, path: str) -> None:
    if not stat.S_ISREG(found.permissions or 0):
        raise GuestPathInvalid(f"{path!r} is no regular file.")
