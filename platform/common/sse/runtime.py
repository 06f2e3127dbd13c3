"""The objects that the streams of one event loop share: connections to Redis, hub, channel leaders, check of grants."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

from common.errors import RateLimited
from common.redis import open_async_client
from common.sse.calls import cancel_task
from common.sse.frames import EventId
from common.sse.hub import Hub, Subscription
from common.sse.leaders import ChannelLeaders, Source
from common.sse.open_grants import OpenGrant, OpenGrants, RevocationCheck
from common.sse.replay import Channel, ReplayBuffer
from common.sse.stream import Stream
from common.stream_clients import EVENTS, client_open

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

CHECK_SECONDS = 0.5  # what is revoked ends within a second
# The most that the replay buffers of the channels read by this process may take in Redis.
REPLAY_BYTES = 128 << 20
# For the synchronous work of all streams, which so needs no more database connections than these threads.
_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="sse")


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run synchronous work, database queries included, in a shared thread; no connection stays open afterwards."""

    def run() -> R:
        try:
            return work(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)


# Called with what sends a frame to one client; what it raises ends the notices of that client.
Notices = Callable[[Callable[[bytes], None]], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Reader:
    """One client's request for a channel. `revoked` checks `grant` while the stream is open. `shape`: of `Stream`.
    `notices` runs while the stream is open, and may send frames beside the channel's events.
    """

    channel: Channel
    source: Source
    grant: Hashable
    revoked: RevocationCheck
    after: EventId | None = None
    tail: int = 0
    shape: Callable[[str], str] | None = None
    notices: Notices | None = None
    owner: str = ""  # limits apply to all streams of one owner


class Runtime:
    """Created with the first stream of a loop, closed with the last."""

    def __init__(self) -> None:
        self.client = open_async_client()
        self.replay = ReplayBuffer(self.client)
        self.hub = Hub(self.client)
        self.leaders = ChannelLeaders(self.replay)
        self.readers: dict[Subscription, Reader] = {}
        self.grants = OpenGrants()
        self._checking = asyncio.ensure_future(self._check_grants())

    async def close(self) -> None:
        await cancel_task(self._checking)
        await self.leaders.close()
        await self.hub.close()
        await self.client.aclose()

    async def read(self, reader: Reader) -> AsyncIterator[bytes]:
        """Yield the body of one stream."""
        subscription = self.hub.subscribe(reader.channel)
        self.readers[subscription] = reader
        opened = OpenGrant(reader.grant, reader.revoked, subscription.end_stream)
        self.grants.add(opened)
        self.leaders.add_reader(reader.channel, reader.source)
        noticing = asyncio.ensure_future(reader.notices(subscription.add_notice)) if reader.notices else None
        try:
            stream = Stream(subscription, self.replay, after=reader.after, tail=reader.tail, shape=reader.shape)
            with client_open(EVENTS):
                async for text in stream.frames():
                    yield text
        finally:
            if noticing is not None:
                noticing.cancel()
            self.leaders.remove_reader(reader.channel)
            self.grants.remove(opened)
            del self.readers[subscription]
            self.hub.remove_listener(subscription)

    async def _check_grants(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.end_revoked_streams()
            except Exception as exc:  # while the database does not answer, open streams go on
                logger.warning("the grants of open streams cannot be checked: %s", exc)

    async def end_revoked_streams(self) -> None:
        """End the streams whose grant is revoked. Raise what their checks raise."""
        await self.grants.end_revoked(in_thread)


_runtimes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = weakref.WeakKeyDictionary()
_users: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int] = weakref.WeakKeyDictionary()


def require_capacity(reader: Reader) -> None:
    """Raise RateLimited if this process, or the reader's owner in it, has as many streams or buffers as allowed.

    An owner gets half of the memory for buffers at most, so that none can exclude the others.
    """
    runtime = _runtimes.get(asyncio.get_running_loop())
    if runtime is None:
        return
    everyone = list(runtime.readers.values())
    own = [one for one in everyone if one.owner == reader.owner]
    full = len(everyone) >= settings.ENV.streams_max or len(own) >= settings.ENV.streams_per_account
    if full or _size(everyone, reader) > REPLAY_BYTES or _size(own, reader) > REPLAY_BYTES // 2:
        raise RateLimited("Too many streams are open; try again later.", headers={"Retry-After": "5"})


def _size(readers: list[Reader], new: Reader) -> int:
    return sum(channel.max_bytes for channel in {one.channel for one in (*readers, new)})


@asynccontextmanager
async def shared_runtime() -> AsyncIterator[Runtime]:
    """Yield this loop's runtime, created for the first user and closed after the last."""
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
