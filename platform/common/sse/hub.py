"""From Redis to the streams of this process: django-eventstream's listeners and queues, with what is wrong mended.

Its own listener on Redis ends for good with the first lost connection; this one comes back, and then lets every stream
look at its window for what it missed. Its queues (ten events a listener) and its locking are used as they are.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from django_eventstream.event import Event
from django_eventstream.views import Listener, ListenerManager
from redis import RedisError
from redis.asyncio import Redis

from common.redis import redis_key
from common.sse.client import end
from common.sse.frames import EventId, frame, parse_id
from common.sse.window import BELL, LOOK, Channel

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 0.5
IDLE_SECONDS = 5.0


@dataclass
class Framed(Event):
    """An event with its text, made once for all who read it."""

    event_id: EventId | None = None
    text: bytes = b""


class Subscription(Listener):
    """One stream's place at a channel. `end` may be called at any time, by anything on its loop."""

    # The library's own: the queue of each channel, and whether it was too short.
    channel_items: dict[str, list[Framed]]
    overflow: bool

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.channel = channel
        self.channels = {channel.name}
        self.ended = ""
        self.assign_loop()

    def take(self) -> tuple[list[Framed], bool]:
        """What came since the last call, and whether there was more than the queue took."""
        self.aevent.clear()
        items, self.channel_items = self.channel_items.get(self.channel.name, []), {}
        overflow, self.overflow = self.overflow, False
        return items, overflow

    def look(self) -> None:
        """Something may have been missed."""
        self.overflow = True
        self.aevent.set()

    def end(self, reason: str) -> None:
        """The stream ends before it delivers anything else."""
        self.ended = self.ended or reason
        self.aevent.set()


class Hub(ListenerManager):
    """The subscriptions of one event loop and the one connection to Redis that serves them all."""

    def __init__(self, client: Redis) -> None:
        super().__init__()
        self._client = client
        self._listening: asyncio.Task[None] | None = None

    @property
    def subscriptions(self) -> list[Subscription]:
        return [one for found in self.listeners_by_channel.values() for one in found]

    def subscribe(self, channel: Channel) -> Subscription:
        subscription = Subscription(channel)
        self.add_listener(subscription)
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._listen())
        return subscription

    async def close(self) -> None:
        """Listen no more."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await end(listening)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as bell:
                    await bell.subscribe(redis_key(BELL))
                    for subscription in self.subscriptions:
                        subscription.look()
                    while True:
                        self._deliver(await bell.get_message(timeout=IDLE_SECONDS))
            except (RedisError, OSError) as exc:
                logger.warning("event streams hear nothing of Redis: %s", exc)
            except Exception:
                logger.exception("event streams")
            await asyncio.sleep(AGAIN_SECONDS)

    def _deliver(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        told = json.loads(message["data"])
        channel, kind, data = told["channel"], told["event_type"], told["data"]
        if channel not in self.listeners_by_channel:
            return
        event_id = parse_id(told["pub_id"])
        if kind == LOOK or event_id is None:
            for subscription in list(self.listeners_by_channel[channel]):
                subscription.look()
            return
        text = frame(event_id, kind, data)
        self.add_to_queues(channel, Framed(channel, kind, data, event_id=event_id, text=text))
