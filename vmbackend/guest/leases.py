"""The open sessions of one event loop, leased to its tasks and reused between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from vmbackend.errors import BackendError

from .session import GuestAddress, GuestSession

OpenSession = Callable[[GuestAddress], GuestSession]


@dataclass(slots=True)
class _Lease:
    session: GuestSession
    users: int
    last_used: float


class Sessions:
    """The sessions of one loop; every method runs on it."""

    def __init__(self, open_session: OpenSession, idle_seconds: float, max_connections: int) -> None:
        self._open_session = open_session
        self._idle_seconds = idle_seconds
        self._max = max_connections
        self._leases: dict[GuestAddress, _Lease] = {}
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def lease(self, address: GuestAddress) -> AsyncIterator[GuestSession]:
        """Yield a session that stays open during the lease. Waits while the maximum number of machines is in use."""
        lease = await self._acquire(address)
        try:
            yield lease.session
        finally:
            lease.users -= 1
            lease.last_used = asyncio.get_running_loop().time()
            async with self._changed:
                self._changed.notify_all()

    async def _acquire(self, address: GuestAddress) -> _Lease:
        async with self._changed:
            while address not in self._leases and len(self._leases) >= self._max:
                if not await self._close_oldest_idle():
                    await self._changed.wait()
            lease = self._leases.get(address)
            if lease is None:
                lease = self._leases[address] = _Lease(self._open_session(address), 0, 0.0)
            lease.users += 1
            return lease

    async def _close_oldest_idle(self) -> bool:
        idle = [address for address, lease in self._leases.items() if lease.users == 0]
        if not idle:
            return False
        await self._close(min(idle, key=lambda address: self._leases[address].last_used))
        return True

    async def _close(self, address: GuestAddress) -> None:
        lease = self._leases.pop(address)
        with contextlib.suppress(BackendError):
            await lease.session.close()

    async def close_idle_forever(self) -> None:
        """Close sessions that were idle for too long."""
        while True:
            await asyncio.sleep(self._idle_seconds / 2)
            old = asyncio.get_running_loop().time() - self._idle_seconds
            async with self._changed:
                for address in [a for a, s in self._leases.items() if s.users == 0 and s.last_used <= old]:
                    await self._close(address)
                self._changed.notify_all()

    async def close(self) -> None:
        """Close all sessions, also those in use."""
        for address in list(self._leases):
            await self._close(address)
