"""From Redis to the streams of this process: django-eventstream's listeners and queues.

Used of it: `Listener` (a queue of ten events a channel, and whether it overflowed) and `ListenerManager` (the listeners
of each channel, with its locking). Its own Redis listener ends with the first lost connection; the one here
reconnects, and then makes every stream read its replay buffer for what it missed.
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
from common.sse.calls import cancel_task
from common.sse.frames import EventId, frame, parse_id
from common.sse.replay import PUBSUB_CHANNEL, RESYNC, Channel

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
IDLE_SECONDS = 5.0


@dataclass
class FramedEvent(Event):  # type: ignore[misc]  # its package has no types
    """An event with its text, which is built once for all its readers."""

    event_id: EventId | None = None
    text: bytes = b""


class Subscription(Listener):  # type: ignore[misc]  # its package has no types
    """One stream's subscription to a channel. All methods are for the loop that made it."""

    # The library's own: the queue of each channel, and whether it overflowed.
    channel_items: dict[str, list[FramedEvent]]
    overflow: bool

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.channel = channel
        self.channels = {channel.name}
        self.end_reason = ""
        self._notices: list[bytes] = []
        self.assign_loop()

    def take_events(self) -> tuple[list[FramedEvent], bool]:
        """Return the events since the last call, and whether the queue overflowed."""
        self.aevent.clear()
        items, self.channel_items = self.channel_items.get(self.channel.name, []), {}
        overflow, self.overflow = self.overflow, False
        return items, overflow

    def add_notice(self, text: bytes) -> None:
        """Send the client a frame that is no event of the channel: it has no id, and is not sent again."""
        self._notices.append(text)
        self.aevent.set()

    def take_notices(self) -> bytes:
        """Return the frames since the last call."""
        notices, self._notices = self._notices, []
        return b"".join(notices)

    def request_resync(self) -> None:
        """Make the stream read its replay buffer: an event may have been missed."""
        self.overflow = True
        self.aevent.set()

    def end_stream(self, reason: str) -> None:
        """End the stream before it delivers another event. The first reason stays."""
        self.end_reason = self.end_reason or reason
        self.aevent.set()


class Hub(ListenerManager):  # type: ignore[misc]  # its package has no types
    """The subscriptions of one event loop, served by one connection to Redis."""

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
        """Close the connection to Redis."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await cancel_task(listening)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(redis_key(PUBSUB_CHANNEL))
                    await pubsub.psubscribe(redis_key(f"{PUBSUB_CHANNEL}:*"))  # those of hosts
                    for subscription in self.subscriptions:
                        subscription.request_resync()
                    while True:
                        self._deliver(await pubsub.get_message(timeout=IDLE_SECONDS))
            except (RedisError, OSError) as exc:
                logger.warning("event streams lost their connection to Redis: %s", exc)
            except Exception:
                logger.exception("event streams")
            await asyncio.sleep(RETRY_SECONDS)

    def _deliver(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        try:
            published = json.loads(message["data"])
            channel, kind, data = (str(published[name]) for name in ("channel", "event_type", "data"))
            event_id = parse_id(str(published["pub_id"]))
        except (ValueError, KeyError, TypeError) as exc:  # of a host that was taken over
            logger.warning("a message of event streams cannot be read: %s", exc)
            return
        host = message["channel"].decode().removeprefix(redis_key(PUBSUB_CHANNEL))[1:]
        if channel not in self.listeners_by_channel or (host and not channel.startswith(f"{host}:")):
            return
        if kind == RESYNC or event_id is None:
            for subscription in list(self.listeners_by_channel[channel]):
                subscription.request_resync()
            return
        text = frame(event_id, kind, data)
        self.add_to_queues(channel, FramedEvent(channel, kind, data, event_id=event_id, text=text))
