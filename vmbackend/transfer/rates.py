"""Limits of bytes a second."""

from __future__ import annotations

import asyncio
import time

# Seconds' worth of bytes that may pass at once.
BURST_SECONDS = 0.25


class Rate:
    """A limit that all who use it share; 0: none. Belongs to one event loop."""

    def __init__(self, bytes_per_second: int) -> None:
        self._per_second = bytes_per_second
        self._free_at = 0.0  # when all that was let through has had its time

    async def admit(self, size: int) -> None:
        """Return when so many bytes may pass; those who wait do so in the order in which they came."""
        if not self._per_second:
            return
        now = time.monotonic()
        begun = max(self._free_at, now - BURST_SECONDS)
        self._free_at = begun + size / self._per_second
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)
