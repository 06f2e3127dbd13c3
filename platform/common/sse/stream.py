"""The stream of one client, from its connection to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from redis import RedisError

from common.sse.frames import GAP, HEARTBEAT, HEARTBEAT_SECONDS, RETRY, EventId, comment, frame, one_line
from common.sse.hub import FramedEvent, Subscription
from common.sse.replay import ReplayBuffer, ReplayPage

logger = logging.getLogger(__name__)

READ_EVENTS = 200


class Stream:
    """The delivery of a channel to one client: each event once and in order, or a `gap` if some are gone. `shape` makes
    the data that this client is sent of an event's data.

    `_last` is the id of the last event delivered. The event that follows it is taken from the queue; anything else (a
    missing number, another epoch, an overflow) makes the stream read the replay buffer.
    """

    def __init__(
        self,
        subscription: Subscription,
        replay: ReplayBuffer,
        *,
        after: EventId | None,
        tail: int,
        shape: Callable[[str], str] | None = None,
    ) -> None:
        self._subscription = subscription
        self._replay = replay
        self._last = after
        self._tail = tail
        self._shape = shape
        self._must_replay = True
        self._heartbeat_at = 0.0

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield chunks of the body. Each is built when the one before was sent: nothing is stored for a slow client."""
        loop = asyncio.get_running_loop()
        self._heartbeat_at = loop.time() + HEARTBEAT_SECONDS
        yield RETRY
        while not self._subscription.end_reason:
            text = await self._replayed() if self._must_replay else self._queued()
            text += self._subscription.take_notices()
            if self._subscription.end_reason:
                break
            if text:
                yield text
            elif not self._must_replay:
                await self._wait(self._heartbeat_at - loop.time())
            if loop.time() >= self._heartbeat_at and not self._subscription.end_reason:
                # One for a client that did not read for long, not all that it missed.
                self._heartbeat_at = max(self._heartbeat_at, loop.time() - HEARTBEAT_SECONDS) + HEARTBEAT_SECONDS
                yield HEARTBEAT
        yield comment(self._subscription.end_reason)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._subscription.aevent.wait()
        except TimeoutError:
            # Also repeats a read of the replay buffer that failed, if no event followed.
            self._must_replay = True

    def _queued(self) -> bytes:
        items, overflow = self._subscription.take_events()
        texts = [] if overflow else [self._next(item) for item in items]
        # Events that cannot be used are in the replay buffer, if anywhere.
        self._must_replay = self._must_replay or overflow
        return b"".join(texts)

    def _next(self, event: FramedEvent) -> bytes:
        """Return the event's text; empty if it was delivered before or is not the next one."""
        last, found = self._last, event.event_id
        if self._must_replay or found is None or (last and last.epoch == found.epoch and found.number <= last.number):
            return b""
        if last is None or last.epoch != found.epoch or found.number != last.number + 1:
            self._must_replay = True
            return b""
        self._last = found
        return event.text if self._shape is None else self._frame(found, event.type, event.data)

    def _frame(self, event_id: EventId, kind: str, data: str) -> bytes:
        return frame(event_id, kind, data if self._shape is None else self._shape(data))

    async def _replayed(self) -> bytes:
        self._must_replay = False
        self._subscription.take_events()
        channel = self._subscription.channel
        try:
            page = await self._replay.read(channel, self._last, tail=self._tail, limit=READ_EVENTS)
        except (RedisError, OSError) as exc:
            # The hub requests a resync when it reaches Redis again.
            logger.warning("an event stream cannot read its replay buffer: %s", exc)
            return b""
        return b"" if page is None else self._text_of(page)

    def _text_of(self, page: ReplayPage) -> bytes:
        before = EventId(page.epoch, page.start - 1)
        texts = [frame(before, GAP, one_line({"gap": True}))] if self._has_gap(page) else []
        texts += [self._frame(*event) for event in page.events]
        self._last = page.events[-1][0] if page.events else before
        self._must_replay = self._last.number < page.newest
        return b"".join(texts)

    def _has_gap(self, page: ReplayPage) -> bool:
        if self._last is None:
            return False
        return self._last.epoch != page.epoch or page.start > self._last.number + 1
