"""Writing to the end of a file in the guest, by its file server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from posixpath import basename, dirname

import asyncssh
from asyncssh import FXF_APPEND, FXF_CREAT, FXF_WRITE

from vmbackend.errors import GuestPathInvalid

from .directories import diagnose_failure, flush_directories, flush_handle
from .sftp import FileChannel
from .transfer import DEFAULT_MODE, existing_file, final_path, send_chunks
from .translate import UnnamedFailure


async def append_file(files: FileChannel, path: str, chunks: AsyncIterator[bytes], mode: int | None) -> int:
    """See GuestSession.append."""
    if basename(path) == "":
        raise GuestPathInvalid(f"{path!r} names a directory.")
    client = await files.client()
    target = await final_path(files, client, path)
    # Anything but a regular file is refused before it is opened: a pipe would block the file server.
    before = await existing_file(files, client, target)
    try:
        size = await _append(files, target, chunks, mode)
        if before is None:
            await flush_directories(files, [dirname(target)])
    except UnnamedFailure as error:
        reason = await diagnose_failure(files, dirname(target))
        raise reason or GuestPathInvalid(f"The machine cannot write to {path!r}.") from error
    return size


async def _append(files: FileChannel, target: str, chunks: AsyncIterator[bytes], mode: int | None) -> int:
    created = asyncssh.SFTPAttrs(permissions=DEFAULT_MODE if mode is None else mode)
    async with files.open_file(target, FXF_WRITE | FXF_CREAT | FXF_APPEND, created) as handle:
        await send_chunks(files, handle, chunks, target)
        if mode is not None:
            await files.request(handle.setstat(asyncssh.SFTPAttrs(permissions=mode)), target)
        await flush_handle(files, handle, target)
        return (await files.request(handle.stat(), target)).size or 0
