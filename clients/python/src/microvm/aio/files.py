"""Files of a workspace, up and down, in parts that fit into memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from errno import EIO
from io import BytesIO
from os import PathLike, fstat
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import httpx

from microvm.addresses import quoted
from microvm.aio.routes.files import AsyncFileRoutes
from microvm.aio.waiting import in_thread, sleep
from microvm.errors import ConnectionFailed, body_of
from microvm.retries import Sending
from microvm.transfers import (
    CHUNK,
    RAW,
    Download,
    ForwardSink,
    Progress,
    mode_of_copy,
    open_private,
    replaceable_file,
    total_size,
)
from microvm.types.files import FileWritten


class AsyncFiles(AsyncFileRoutes):
    """Files of a running workspace. Paths are absolute. `progress` gets the bytes that are done, and all, if known."""

    async def read(self, workspace: str, path: str) -> bytes:
        """The bytes of a file."""
        sink = BytesIO()
        await self._receive(workspace, path, Download(sink))
        return sink.getvalue()

    async def read_part(self, workspace: str, path: str, *, offset: int = 0, length: int) -> tuple[bytes, int | None]:
        """At most `length` bytes of a file from `offset` on, and the size of the whole file (None: not known).

        Raises ApiError also where `offset` lies behind the end of the file, ConnectionFailed.
        """
        headers = {"Accept": RAW, "Range": f"bytes={offset}-{offset + length - 1}"}
        sending = Sending("GET", _address(workspace), {"path": path}, None, headers)
        try:
            async with self._transport.opened(sending) as response:
                # What has no ranges, as files of the kernel, comes from its first byte on.
                to_skip = offset if response.status_code != 206 else 0
                part = await _part_of(response, to_skip, length)
                return part, total_size(response.status_code, response.headers)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"{path} broke off: {error}") from error

    async def write(self, workspace: str, path: str, content: bytes) -> FileWritten:
        """Write a whole file: readers see the old one or the new one. Missing directories are made."""
        return await self._send(workspace, path, BytesIO(content), len(content), None)

    async def download(
        self, workspace: str, path: str, target: str | PathLike[str], *, progress: Progress | None = None
    ) -> int:
        """Copy a file of the workspace to `target`, and return its size in bytes.

        After a lost connection it goes on where it was. `target` is replaced when everything is there; on failure it
        is left as it was. Of a symbolic link the file is replaced that it leads to. Its mode is that of the file there,
        without what the umask takes, or a replaced file has not.
        Raises OSError also where it is a device, a pipe or a folder, which nothing replaces.
        """
        final = replaceable_file(target)
        part = final.with_name(f".{uuid4().hex}.part")
        try:
            with open_private(part) as sink:
                size = await self._receive(workspace, path, download := Download(sink, progress))
            part.chmod(mode_of_copy(final, download.mode))
            part.replace(final)
        finally:
            part.unlink(missing_ok=True)
        return size

    async def download_to(self, workspace: str, path: str, sink: BinaryIO) -> int:
        """Write a file of the workspace to `sink`, as a pipe, while it comes; returns its size in bytes.

        Raises OSError of the sink, ConnectionFailed also where it changed before a lost connection was back; what
        came until then is written.
        """
        return await self._receive(workspace, path, Download(ForwardSink(sink)))

    async def upload(
        self,
        workspace: str,
        path: str,
        source: str | PathLike[str],
        *,
        progress: Progress | None = None,
        mode: int | None = None,
    ) -> FileWritten:
        """Copy a file to the workspace. Readers there see the old one or the whole new one.

        `mode`: its permission bits, by default those of the source. A file that is replaced keeps those of its own that
        are among them.
        After a lost connection it begins again, and so does `progress`. Of a file that grows during it what it had at
        the beginning is copied; OSError is raised for one that shrinks.
        """
        with Path(source).open("rb") as opened:
            state = fstat(opened.fileno())
            wanted = state.st_mode if mode is None else mode
            return await self._send(workspace, path, opened, state.st_size, progress, mode=f"{wanted & 0o777:04o}")

    async def _send(
        self,
        workspace: str,
        path: str,
        source: BinaryIO,
        size: int,
        progress: Progress | None,
        *,
        mode: str | None = None,
    ) -> FileWritten:
        async def parts() -> AsyncIterator[bytes]:
            source.seek(0)
            done = 0
            while part := await in_thread(source.read, min(CHUNK, size - done)):
                done += len(part)
                yield part
                if progress is not None:
                    progress(done, size)
            if done < size:
                raise OSError(EIO, f"It has {done} bytes now, and had {size}")

        headers = {"Content-Type": RAW, "Content-Length": str(size)}
        query = {"path": path, "mode": mode}
        sending = Sending("POST", _address(workspace), query, None, headers, is_idempotent=True)
        async with self._transport.opened(sending, parts) as response:
            written: FileWritten = body_of(response.status_code, await response.aread())  # type: ignore[assignment]
            return written

    async def _receive(self, workspace: str, path: str, download: Download) -> int:
        failures = 0
        while True:
            before = download.done
            sending = Sending("GET", _address(workspace), {"path": path}, None, download.headers())
            try:
                async with self._transport.opened(sending) as response:
                    download.begin_part(response.status_code, response.headers)
                    async for part in response.aiter_bytes():
                        await in_thread(download.add, part)
                return download.done
            except httpx.TransportError as error:
                failures = 1 if download.done > before else failures + 1
                wait = self._transport.retries.wait_before_next(failures, None)
                if wait is None:
                    raise ConnectionFailed(f"{path} broke off after {download.done} bytes: {error}") from error
            await sleep(wait)


async def _part_of(response: httpx.Response, to_skip: int, length: int) -> bytes:
    """The next `length` bytes of a body, after so many that are skipped."""
    found, skipped = bytearray(), 0
    async for part in response.aiter_bytes():
        rest = part[max(0, to_skip - skipped) :]
        skipped += len(part) - len(rest)
        found += rest[: length - len(found)]
        if len(found) >= length:
            break
    return bytes(found)


def _address(workspace: str) -> str:
    return f"/workspace/{quoted(workspace)}/overlay/files"
