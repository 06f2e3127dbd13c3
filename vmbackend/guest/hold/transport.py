"""The byte streams to a guest's hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Transport(Protocol):
    """Bytes in both directions. All methods but `close` raise GuestUnreachable once it is lost."""

    async def read(self, limit: int) -> bytes:
        """Return the next bytes, b"" at the end."""

    def write(self, data: bytes) -> None:
        """Queue bytes; `drain` limits how many."""

    async def drain(self) -> None:
        """Wait until few bytes are queued."""

    def spend_time(self, seconds: float) -> float:
        """Charge the guest for the CPU time that what was read has cost; return how long it is not read then."""

    async def explain_end(self) -> Exception:
        """Return why it ended before it said anything."""

    async def close(self) -> None:
        """End it. Idempotent."""


OpenTransport = Callable[[], Awaitable[Transport]]
