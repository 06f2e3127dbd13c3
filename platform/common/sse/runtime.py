"""What the streams of one event loop share: the connections to Redis, the hub, the followers, the watch over rights."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

from common.errors import RateLimited
from common.redis import open_async_client
from common.sse.client import end
from common.sse.follow import Followers, Source
from common.sse.frames import EventId
from common.sse.hub import Hub, Subscription
from common.sse.stream import Stream
from common.sse.window import Channel, Window

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

CHECK_SECONDS = 1.0
# The windows that this process may ask for take so much of Redis at most.
WINDOWS_BYTES = 128 << 20
# For all synchronous work of all streams: the database's connections are as few.
_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="sse")


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run synchronous work, database included, without a thread or a connection that stays with the caller."""

    def run() -> R:
        try:
            return work(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)


# Which of these tickets have lost their right, and why. Runs in a thread, once a second for all streams.
Check = Callable[[Sequence[Any]], dict[Any, str]]


@dataclass(frozen=True, slots=True)
class Reader:
    """One client's wish. `ticket` is what `check` decides by while the stream is open."""

    channel: Channel
    source: Source
    ticket: Hashable
    check: Check
    after: EventId | None = None
    tail: int = 0
    owner: str = ""  # whose streams are counted together


class Runtime:
    """Made with the first stream of a loop, closed with the last."""

    def __init__(self) -> None:
        self.client = open_async_client()
        self.window = Window(self.client)
        self.hub = Hub(self.client)
        self.followers = Followers(self.window)
        self.readers: dict[Subscription, Reader] = {}
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        await end(self._watching)
        await self.followers.close()
        await self.hub.close()
        await self.client.aclose()

    async def read(self, reader: Reader) -> AsyncIterator[bytes]:
        """The body of one stream."""
        subscription = self.hub.subscribe(reader.channel)
        self.readers[subscription] = reader
        self.followers.join(reader.channel, reader.source)
        try:
            stream = Stream(subscription, self.window, after=reader.after, tail=reader.tail)
            async for text in stream.frames():
                yield text
        finally:
            self.followers.leave(reader.channel)
            del self.readers[subscription]
            self.hub.remove_listener(subscription)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except Exception as exc:  # a database that is away: who was let in stays, until it can be asked
                logger.warning("the rights of open streams cannot be checked: %s", exc)

    async def check(self) -> None:
        """End the streams whose right is gone."""
        open_now = list(self.readers.items())
        for check in {reader.check for _, reader in open_now}:
            tickets = {reader.ticket for _, reader in open_now if reader.check is check}
            lost = await in_thread(check, list(tickets))
            for subscription, reader in open_now:
                if reader.check is check and reader.ticket in lost:
                    subscription.end(lost[reader.ticket])


_runtimes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = weakref.WeakKeyDictionary()
_users: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int] = weakref.WeakKeyDictionary()


def admit(reader: Reader) -> None:
    """Raises RateLimited where this process, or the reader's owner here, has as many streams or windows as it may have.

    An owner gets half of the windows at most, so that none can keep the others out.
    """
    runtime = _runtimes.get(asyncio.get_running_loop())
    if runtime is None:
        return
    everyone = list(runtime.readers.values())
    own = [one for one in everyone if one.owner == reader.owner]
    full = len(everyone) >= settings.ENV.streams_max or len(own) >= settings.ENV.streams_per_account
    if full or _size(everyone, reader) > WINDOWS_BYTES or _size(own, reader) > WINDOWS_BYTES // 2:
        raise RateLimited("Too many streams are open; try again later.", headers={"Retry-After": "5"})


def _size(readers: list[Reader], new: Reader) -> int:
    return sum(channel.size for channel in {one.channel for one in (*readers, new)})


@asynccontextmanager
async def running() -> AsyncIterator[Runtime]:
    """This loop's runtime."""
    loop = asyncio.get_running_loop()
    runtime = _runtimes.get(loop)
    if runtime is None:
        runtime = _runtimes[loop] = Runtime()
    _users[loop] = _users.get(loop, 0) + 1
    try:
        yield runtime
    finally:
        _users[loop] -= 1
        if not _users[loop]:
            del _runtimes[loop]
            await runtime.close()
