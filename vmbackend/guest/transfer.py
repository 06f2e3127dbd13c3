"""Reading and writing files over SFTP: several requests in flight, constant memory."""

from __future__ import annotations

import asyncio
import secrets
import stat
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from posixpath import basename, dirname, join
from typing import Any, cast

import asyncssh
from asyncssh import FXF_CREAT, FXF_EXCL, FXF_READ, FXF_WRITE

from vmbackend.errors import (
    BackendError,
    GuestPathInvalid,
    GuestPathNotFound,
    GuestUnreachable,
)

from .directories import DATA_SECONDS, diagnose_failure, flush_directories, flush_handle, make_parents, require_absent
from .sftp import FileChannel
from .translate import UnnamedFailure

# Slightly less than the longest message of OpenSSH's server: larger blocks cost less CPU on both sides.
BLOCK = 240 * 1024
DEPTH = 8  # requests in flight: at most 2 MiB of data per transfer
DEFAULT_MODE = 0o644
PARTIAL = ".partial-"
# Gives a partial file what its target has beside its content.
Keep = Callable[[str, str], Awaitable[None]]
# From a partial file to its target; False if it cannot, and nothing was renamed.
Move = Callable[[str, str], Awaitable[bool]]


async def read_file(files: FileChannel, path: str, offset: int, length: int | None) -> AsyncGenerator[bytes, None]:
    """Yield chunks of a regular file on a disk. Raise GuestPathNotFound, GuestPathInvalid.

    The caller has checked that it is one: opening a fifo blocks the guest's whole file server. Checked again here, as
    it may have been replaced in between.
    """
    async with files.open_file(path, FXF_READ) as handle:
        _require_regular(await files.request(handle.stat(), path), path)

        async def fetch(position: int, size: int) -> bytes:
            block = cast("bytes", await files.request(handle.read(size, position), path, DATA_SECONDS))
            if len(block) > size:
                raise GuestUnreachable("The machine's file server violates the protocol.")
            return block

        end = None if length is None else offset + length
        blocks = _pipeline(fetch, offset, end)
        try:
            async for block in blocks:
                yield block
        finally:
            await blocks.aclose()


async def _pipeline(fetch: Callable[[int, int], Awaitable[bytes]], offset: int, end: int | None) -> Any:
    """Yield blocks in order, until an empty one. Sizes are not trusted: files of /proc report 0, and files grow.

    The number of requests in flight doubles with each full block, so that a small file costs two requests. After a
    short block those in flight have wrong offsets and are dropped.
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
    """Cancel and await, so that no exception is left unretrieved."""
    listed = list(tasks)
    for task in listed:
        task.cancel()
    await asyncio.gather(*listed, return_exceptions=True)


async def write_file(
    files: FileChannel,
    path: str,
    chunks: AsyncIterator[bytes],
    mode: int | None,
    *,
    replace: bool = True,
    keep: Keep,
    move: Move | None = None,
) -> int:
    """Write to a partial file and rename; see GuestSession.write. `move` renames it in place of the file server.

    When it returns, the file, its name and the names of new parents are on the disk.
    """
    client = await files.client()
    if replace:
        target = await final_path(files, client, path)
        before = await existing_file(files, client, target)
    else:
        await require_absent(files, path)
        target, before = path, None
    parent = dirname(target)
    partial = join(parent, PARTIAL + secrets.token_hex(8))
    async with files.tracked_partial(partial):
        try:
            made = await make_parents(files, client, parent)
            size = await _write_partial(files, partial, chunks, _attributes(before, mode))
            if before is not None and mode is None:
                await keep(partial, target)
            if move is None or not await move(partial, target):
                # The one replaces its target atomically, the other fails if there is one, likewise.
                rename = client.posix_rename if replace else client.rename
                await files.request(rename(partial, target), path)
            await flush_directories(files, [parent, *map(dirname, made)])
        except (UnnamedFailure, GuestPathNotFound) as error:
            # Determined before the partial file, which may be what fills the disk, is removed.
            reason = await diagnose_failure(files, parent)
            await _remove(files, partial)
            if not replace:
                await require_absent(files, path)
            raise reason or GuestPathInvalid(f"The machine cannot store a file at {path!r}.") from error
        except BaseException:
            await _remove(files, partial)
            raise
    return size


async def final_path(files: FileChannel, client: asyncssh.SFTPClient, path: str) -> str:
    """Return the target of a symbolic link, so that writing does not replace the link."""
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
        raise GuestPathInvalid(f"{path!r} is a symbolic link with a missing target.") from error
    # The search for its parents ends at the root, which a relative path does not have.
    if not str(resolved).startswith("/"):
        raise GuestUnreachable("The machine's file server violates the protocol.")
    return str(resolved)


async def existing_file(files: FileChannel, client: asyncssh.SFTPClient, path: str) -> asyncssh.SFTPAttrs | None:
    try:
        found = await files.request(client.lstat(path), path)
    except GuestPathNotFound:
        return None
    _require_regular(found, path)
    return found


def _attributes(before: asyncssh.SFTPAttrs | None, mode: int | None) -> tuple[asyncssh.SFTPAttrs, ...]:
    """Return attributes for the partial file, in order: the owner first, since a change of owner clears setuid bits."""
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
        size = await send_chunks(files, handle, chunks, partial)
        for step in attributes:
            await files.request(handle.setstat(step), partial)
        await flush_handle(files, handle, partial)
    return size


async def send_chunks(
    files: FileChannel, handle: asyncssh.SFTPClientFile, chunks: AsyncIterator[bytes], path: str
) -> int:
    """Send the chunks, at most DEPTH blocks unanswered.

    The caller's iterator is awaited without translating its errors.
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
    """Remove a partial file, as a best effort: if the guest is unreachable the file stays, with a name that marks it as
    partial.
    """

    async def remove() -> None:
        with suppress(BackendError):
            client = await files.client()
            await files.request(client.remove(partial), partial)

    # Shielded, so that a cancelled caller leaves nothing behind.
    await asyncio.shield(asyncio.ensure_future(remove()))


def _require_regular(found: asyncssh.SFTPAttrs, path: str) -> None:
    if not stat.S_ISREG(found.permissions or 0):
        raise GuestPathInvalid(f"{path!r} is not a regular file.")
