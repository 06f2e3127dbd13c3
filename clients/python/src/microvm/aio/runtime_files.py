"""Files inside a workspace: trees of any size, and many files at once as archives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, BinaryIO, Unpack

import httpx

from microvm.aio.group import LONG
from microvm.aio.routes.runtime_files import AsyncRuntimeFileRoutes
from microvm.aio.waiting import in_thread
from microvm.errors import ConnectionFailed, body_of
from microvm.retries import Sending
from microvm.transfers import CHUNK, GZIP
from microvm.trees import TreeParser, TreeQuery
from microvm.types.runtime_files import RuntimeEntry, RuntimeUploadResponse


class AsyncRuntimeFiles(AsyncRuntimeFileRoutes):
    """Files in one workspace, with a token of its runtime."""

    async def stream(self, **query: Unpack[TreeQuery]) -> AsyncGenerator[RuntimeEntry, None]:
        """Yield the entries of a tree while they are found, of any number. The query is that of `list`.

        Raises ApiError, also where the service fails in between (its `status` is 200 then), and ConnectionFailed where
        the stream breaks off: what came before is not all.
        """
        parser = TreeParser()
        sending = Sending("GET", "/files/stream", query=query, timeout=LONG)
        try:
            async with self._transport.opened(sending) as response:
                async for part in response.aiter_bytes():
                    for entry in parser.entries_in(part):
                        yield entry
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The tree broke off: {error}") from error
        parser.finish()

    async def download_parts(
        self, paths: Sequence[str | dict[str, Any]], *, exclude_patterns: Sequence[str] = ()
    ) -> AsyncGenerator[bytes, None]:
        """Yield a tar.gz of the paths with all that is below them, while it comes. Names in it are relative to `/`.

        It is asked for again as long as nothing has come. Raises ApiError, and ConnectionFailed where it broke off:
        what came before is no whole archive.
        """
        body = {"paths": list(paths), "exclude_patterns": list(exclude_patterns)}
        sending = Sending("POST", "/files/transfer/download", body=body, timeout=LONG, is_idempotent=True)
        size = 0
        try:
            async with self._transport.opened(sending) as response:
                async for part in response.aiter_bytes():
                    size += len(part)
                    yield part
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The archive broke off after {size} bytes: {error}") from error

    async def download(
        self, paths: Sequence[str | dict[str, Any]], sink: BinaryIO, *, exclude_patterns: Sequence[str] = ()
    ) -> int:
        """Write what `download_parts` yields to `sink`; returns its size in bytes. Raises OSError of the sink, too."""
        parts, size = self.download_parts(paths, exclude_patterns=exclude_patterns), 0
        try:
            async for part in parts:
                await in_thread(sink.write, part)
                size += len(part)
        finally:
            await parts.aclose()
        return size

    async def upload(self, source: BinaryIO, *, dest: str = "/") -> RuntimeUploadResponse:
        """Unpack a tar.gz in a directory of the workspace while it is sent: from where `source` stands to its end.

        After a lost connection it is sent again, if `source` can be read again; else this raises ConnectionFailed.
        Files that were unpacked before an error stay: `details["files_extracted"]` of the ApiError says how many.
        """
        is_repeatable = source.seekable()
        start = source.tell() if is_repeatable else 0
        attempts = 0

        async def parts() -> AsyncIterator[bytes]:
            nonlocal attempts
            attempts += 1
            if is_repeatable:
                source.seek(start)
            elif attempts > 1:
                raise ConnectionFailed("The archive cannot be read again, and so not be sent again.")
            while part := await in_thread(source.read, CHUNK):
                yield part

        sending = Sending(
            "POST",
            "/files/transfer/upload",
            query={"dest": dest},
            headers={"Content-Type": GZIP},
            timeout=LONG,
            is_idempotent=is_repeatable,
        )
        async with self._transport.opened(sending, parts) as response:
            done: RuntimeUploadResponse = body_of(response.status_code, await response.aread())  # type: ignore[assignment]
            return done
