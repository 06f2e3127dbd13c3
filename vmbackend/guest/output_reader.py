"""Reading both outputs of a command at once, as they are taken."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from vmbackend.errors import GuestOutputNotRead

from .output import OutputPart, StreamName
from .translate import translate_errors

# Bytes of one part at most.
PART_BYTES = 32 * 1024


class ByteReader(Protocol):
    """One of a command's streams."""

    async def read(self, n: int, /) -> bytes:
        """Return at least one byte, at most `n`; none at the end."""
        ...


class OutputReader:
    """A reader of both streams of a command: of each at most one part waits to be taken, so that the command waits too.

    For one taker at a time; belongs to the loop that made it.
    """

    def __init__(self, stdout: ByteReader, stderr: ByteReader, until: float) -> None:
        """`until`: the time of the monotonic clock after which nothing is waited for."""
        self.until = until
        self._streams: dict[StreamName, ByteReader] = {"stdout": stdout, "stderr": stderr}
        self._reading: dict[asyncio.Future[bytes], StreamName] = {}
        self._ready: deque[OutputPart] = deque()
        for name in self._streams:
            self._begin_read(name)

    async def take_part(self, until: float | None = None) -> OutputPart | None:
        """Return the next part, None once both streams have ended.

        Raise TimeoutError if nothing came by `until` (default: that of the reader), GuestOutputNotRead if the
        reader's time is over and there was output to be taken, GuestUnreachable if the connection is lost.
        """
        if time.monotonic() >= self.until and (self._ready or any(read.done() for read in self._reading)):
            raise GuestOutputNotRead("The output was not read in time; the command has been ended.")
        while not self._ready:
            if not self._reading:
                return None
            left = (self.until if until is None else min(until, self.until)) - time.monotonic()
            done, _ = await asyncio.wait(self._reading, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise TimeoutError
            for read in done:
                self._end_read(read)
        part = self._ready.popleft()
        self._begin_read(part.stream)
        return part

    async def close(self) -> None:
        """Stop reading."""
        for read in self._reading:
            read.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _begin_read(self, name: StreamName) -> None:
        self._reading[asyncio.ensure_future(self._streams[name].read(PART_BYTES))] = name

    def _end_read(self, read: asyncio.Future[bytes]) -> None:
        name = self._reading.pop(read)
        with translate_errors():
            data = read.result()
        if data:
            self._ready.append(OutputPart(name, data))
