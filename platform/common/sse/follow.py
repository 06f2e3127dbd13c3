"""Who writes a channel: one process at a time, for as long as any has readers.

Every process with readers of a channel tries for its lease in Redis; the holder runs the source. It renews the lease
while it runs, so a process that dies is followed by another that has readers within LEASE_SECONDS, and that one goes on
from the position in the channel's window. A holder that lost its lease unaware is stopped by the window itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from redis import RedisError
from redis.asyncio.lock import Lock
from redis.exceptions import LockError

from common.sse.client import asked, end
from common.sse.window import Channel, Superseded, Window

logger = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
AGAIN_SECONDS = 1.0

# Writes a channel until it is cancelled; what it raises is logged, and it is started again.
Source = Callable[[Window], Awaitable[None]]


class Followers:
    """The sources that this event loop runs or stands by for, by channel."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self.readers: dict[Channel, int] = {}
        self.held: set[Channel] = set()  # what this process writes
        self._tasks: dict[Channel, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def join(self, channel: Channel, source: Source) -> None:
        """One reader more; the first makes this process stand for the source."""
        self.readers[channel] = self.readers.get(channel, 0) + 1
        if channel not in self._tasks:
            self._tasks[channel] = asyncio.ensure_future(self._stand(channel, source))

    def leave(self, channel: Channel) -> None:
        """One reader fewer; the last ends the source here."""
        self.readers[channel] -= 1
        if not self.readers[channel]:
            del self.readers[channel]
            self._end(self._tasks.pop(channel))

    async def close(self) -> None:
        """End all, and wait until they have given their leases back."""
        while self._tasks:
            self._end(self._tasks.popitem()[1])
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=5)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _stand(self, channel: Channel, source: Source) -> None:
        while True:
            try:
                await self._try(channel, source)
            except Superseded:
                logger.info("the source of %s begins again", channel.name)
            except (RedisError, OSError) as exc:
                logger.warning("the source of %s: %s", channel.name, exc)
            except Exception:
                logger.exception("the source of %s", channel.name)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _try(self, channel: Channel, source: Source) -> None:
        lease = self._window.client.lock(f"{channel.keys[0]}:lease", timeout=LEASE_SECONDS, thread_local=False)
        if not await _acquired(lease):
            return
        self.held.add(channel)
        running = asyncio.ensure_future(source(self._window))
        try:
            while not running.done():
                await asyncio.wait([running], timeout=LEASE_SECONDS / 3)
                await asked(lease.reacquire())
            await running
        finally:
            await end(running)
            self.held.discard(channel)
            with suppress(LockError, RedisError, OSError):
                await asked(lease.release())


async def _acquired(lease: Lock) -> bool:
    """Whether the lease is ours. A cancellation waits for the answer: a lease that was given to somebody who has left
    would keep every other process from the source until it runs out.
    """
    asking = asyncio.ensure_future(asked(lease.acquire(blocking=False)))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        with suppress(LockError, RedisError, OSError):
            if await asking:
                await asked(lease.release())
        raise
