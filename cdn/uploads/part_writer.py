"""Writer of the pieces of one body into a part file, in threads, while the next piece is received."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cdn.storage.parts import PartFile

P = ParamSpec("P")
T = TypeVar("T")
# These threads are separate from all others: a disk that is slow to flush delays uploads alone.
_threads = ThreadPoolExecutor(16, thread_name_prefix="cdn-upload")


async def in_upload_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work with a part file in one of its threads."""
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: work(*args, **kwargs))


class PartWriter:
    """Writer of an open part, for one task and the task that renews its lease.

    One piece is in memory while it is written, and another while it is received.
    """

    def __init__(self, part: PartFile, *, hashed: bool) -> None:
        self._part = part
        self._digest = hashlib.sha256() if hashed else None
        self._stopped = False
        self._running: set[asyncio.Future[None]] = set()
        self._last: asyncio.Future[None] | None = None
        # Bytes that were written, and those of them that were flushed.
        self.written = self.synced = part.size

    async def append(self, piece: bytes) -> None:
        """Write a piece after the earlier ones; return when the piece before it is written. Raise
        StorageUnavailable.
        """
        await self._ended()
        self._last = self._start(lambda: self._write(piece))

    async def sync(self) -> int:
        """Flush the written bytes; return how many bytes that is. Raise StorageUnavailable."""
        written = self.written
        if written > self.synced:
            await asyncio.shield(self._start(self._part.sync))
            self.synced = max(self.synced, written)
        return written

    async def finish(self) -> int:
        """Write and flush everything that was appended. Returns and raises as `sync` does."""
        await self._ended()
        return await self.sync()

    async def sha256(self) -> str:
        """Return the digest of the whole part, after `finish`. Raise StorageUnavailable."""
        if self._digest is not None:
            return self._digest.hexdigest()
        found: list[str] = []
        await asyncio.shield(self._start(lambda: found.append(self._part.sha256(lambda: self._stopped))))
        return found[0]

    async def close(self) -> None:
        """Close the part when no thread works on it any more."""
        self._stopped = True
        if self._running:
            await asyncio.wait(self._running)
        self._part.close()

    def _write(self, piece: bytes) -> None:
        try:
            self._part.write(piece)
        finally:
            self.written = self._part.size
        if self._digest is not None:
            self._digest.update(piece)

    async def _ended(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            await asyncio.shield(last)

    def _start(self, work: Callable[[], None]) -> asyncio.Future[None]:
        made = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(_threads, work))
        self._running.add(made)
        made.add_done_callback(self._forget)
        return made

    def _forget(self, ended: asyncio.Future[None]) -> None:
        self._running.discard(ended)
        # An error that no one waits for any more has been raised before.
        _ = ended.cancelled() or ended.exception()
