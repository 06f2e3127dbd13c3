"""What one client is sent, from its connection to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from redis import RedisError

from common.sse.frames import GAP, HEARTBEAT, HEARTBEAT_SECONDS, RETRY, EventId, comment, frame, one_line
from common.sse.hub import Framed, Subscription
from common.sse.window import Held, Window

logger = logging.getLogger(__name__)

READ_EVENTS = 200


class Stream:
    """Delivers a channel to one client: each event once and in order, or a `gap` where some are gone.

    Its place is the id of the last event that it gave. An event that follows it is taken from the queue; anything
    else (a hole, another epoch, a queue that was full) makes it read the window.
    """

    def __init__(self, subscription: Subscription, window: Window, *, after: EventId | None, tail: int) -> None:
        self._subscription = subscription
        self._window = window
        self._place = after
        self._tail = tail
        self._behind = True
        self._beat = 0.0

    async def frames(self) -> AsyncIterator[bytes]:
        """Chunks of the body. The next is made only when the last was taken: nothing is stored for a slow client."""
        loop = asyncio.get_running_loop()
        self._beat = loop.time() + HEARTBEAT_SECONDS
        yield RETRY
        while not self._subscription.ended:
            text = await self._read() if self._behind else self._queued()
            if self._subscription.ended:
                break
            if text:
                yield text
            elif not self._behind:
                await self._wait(self._beat - loop.time())
            if loop.time() >= self._beat and not self._subscription.ended:
                # One for a client that did not read for long, not all that it missed.
                self._beat = max(self._beat, loop.time() - HEARTBEAT_SECONDS) + HEARTBEAT_SECONDS
                yield HEARTBEAT
        yield comment(self._subscription.ended)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._subscription.aevent.wait()
        except TimeoutError:
            # Also the way out where a read failed while nothing else happened.
            self._behind = True

    def _queued(self) -> bytes:
        items, overflow = self._subscription.take()
        texts = [] if overflow else [self._next(item) for item in items]
        # What cannot be used is in the window, if it is anywhere.
        self._behind = self._behind or overflow
        return b"".join(texts)

    def _next(self, event: Framed) -> bytes:
        """The event's text, nothing where it was given already or is not the next one."""
        place, found = self._place, event.event_id
        if self._behind or found is None or (place and place.epoch == found.epoch and found.number <= place.number):
            return b""
        if place is None or place.epoch != found.epoch or found.number != place.number + 1:
            self._behind = True
            return b""
        self._place = found
        return event.text

    async def _read(self) -> bytes:
        self._behind = False
        self._subscription.take()
        try:
            held = await self._window.read(self._subscription.channel, self._place, tail=self._tail, limit=READ_EVENTS)
        except (RedisError, OSError) as exc:
            # The hub comes back to us when it hears Redis again.
            logger.warning("an event stream cannot read its window: %s", exc)
            return b""
        return b"" if held is None else self._take(held)

    def _take(self, held: Held) -> bytes:
        before = EventId(held.epoch, held.start - 1)
        texts = [frame(before, GAP, one_line({"gap": True}))] if self._missed(held) else []
        texts += [frame(*event) for event in held.events]
        self._place = held.events[-1][0] if held.events else before
        self._behind = self._place.number < held.last
        return b"".join(texts)

    def _missed(self, held: Held) -> bool:
        place = self._place
        if place is None:
            return False
        return place.epoch != held.epoch or held.start > place.number + 1
