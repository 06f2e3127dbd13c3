"""Leader election of each channel: one process at a time writes it, for as long as any process has readers.

Every process with readers of a channel tries to take its lease in Redis; the leader runs the source and renews the
lease. When the leader dies, another process with readers takes over within LEASE_SECONDS and continues from the
position in the replay buffer. A leader that lost its lease without noticing is stopped by the replay buffer itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from redis import RedisError
from redis.asyncio.lock import Lock
from redis.exceptions import LockError

from common.sse.calls import bounded_call, cancel_task
from common.sse.replay import Channel, ReplayBuffer, Superseded

logger = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
RETRY_SECONDS = 1.0

# Writes a channel until it is cancelled; what it raises is logged, and it is started again.
Source = Callable[[ReplayBuffer], Awaitable[None]]


class ChannelLeaders:
    """The channels that this event loop writes, or would take over."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay = replay
        self.readers: dict[Channel, int] = {}
        self.led: set[Channel] = set()
        self._tasks: dict[Channel, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def add_reader(self, channel: Channel, source: Source) -> None:
        """Add a reader; the first reader of a channel makes this process a candidate."""
        self.readers[channel] = self.readers.get(channel, 0) + 1
        if channel not in self._tasks:
            self._tasks[channel] = asyncio.ensure_future(self._campaign(channel, source))

    def remove_reader(self, channel: Channel) -> None:
        """Remove a reader; the last reader of a channel ends the source here."""
        self.readers[channel] -= 1
        if not self.readers[channel]:
            del self.readers[channel]
            self._cancel(self._tasks.pop(channel))

    async def close(self) -> None:
        """End all sources, and wait until their leases are released."""
        while self._tasks:
            self._cancel(self._tasks.popitem()[1])
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=5)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _campaign(self, channel: Channel, source: Source) -> None:
        while True:
            try:
                await self._lead(channel, source)
            except Superseded:
                logger.info("the source of %s starts again", channel.name)
            except (RedisError, OSError) as exc:
                logger.warning("the source of %s failed: %s", channel.name, exc)
            except Exception:
                logger.exception("the source of %s failed", channel.name)
            await asyncio.sleep(RETRY_SECONDS)

    async def _lead(self, channel: Channel, source: Source) -> None:
        """Run the source while this process has the lease; return at once if another has it."""
        lease = self._replay.client.lock(f"{channel.keys[0]}:lease", timeout=LEASE_SECONDS, thread_local=False)
        if not await _acquired(lease):
            return
        self.led.add(channel)
        running = asyncio.ensure_future(source(self._replay))
        try:
            while not running.done():
                await asyncio.wait([running], timeout=LEASE_SECONDS / 3)
                await bounded_call(lease.reacquire())
            await running
        finally:
            await cancel_task(running)
            self.led.discard(channel)
            with suppress(LockError, RedisError, OSError):
                await bounded_call(lease.release())


async def _acquired(lease: Lock) -> bool:
    """Return whether the lease is ours. A cancellation waits for the answer: a lease granted to a process that has no
    readers any more would keep every other process from the source until it expires.
    """
    acquiring = asyncio.ensure_future(bounded_call(lease.acquire(blocking=False)))
    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        with suppress(LockError, RedisError, OSError):
            if await acquiring:
                await bounded_call(lease.release())
        raise
