"""The replay buffer of a channel: its last events in Redis, and the position of its source.

    <prefix>sse:<channel>          hash: epoch, last (number of the newest event), bytes, position
    <prefix>sse:<channel>:events   list: the newest events, "KIND\nDATA" each

Each change is one script and therefore atomic: an event is numbered, stored and published and the source's position
moved, or nothing is. `append` moves the position only from the expected one (compare-and-set): of two sources that both
believe to be the leader, the second to write gets Superseded, and no event is published twice.

A buffer outlives its source by `ttl` seconds. A later one begins a new epoch, by which clients that reconnect know that
they may have missed events.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from common.redis import redis_key
from common.sse.calls import bounded_call
from common.sse.frames import EventId

# One pub/sub channel carries the events of all channels to all processes, as JSON in django-eventstream's format.
PUBSUB_CHANNEL = "events_channel"
# The kind of a message that is no event: the channel's buffer began, or must be read again.
RESYNC = "resync"
# Bytes of one read, unless a single event is larger: a stream holds as many while its client does not read.
READ_BYTES = 32 * 1024
# The position of a channel whose source must wait, because what it reads is being changed.
PAUSED = "paused"

_APPEND = """
local position = redis.call('HGET', KEYS[1], 'position')
if (position or '') ~= ARGV[1] then return 0 end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
local function publish(kind, data, id)
  redis.call('PUBLISH', ARGV[7], cjson.encode({channel = ARGV[6], event_type = kind, data = data, pub_id = id}))
end
if not epoch then
  epoch = ARGV[8]
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'last', 0, 'bytes', 0)
  publish('resync', '', '')
end
local last = tonumber(redis.call('HGET', KEYS[1], 'last'))
local bytes = tonumber(redis.call('HGET', KEYS[1], 'bytes'))
for i = 9, #ARGV, 2 do
  local item = ARGV[i] .. '\\n' .. ARGV[i + 1]
  last, bytes = last + 1, bytes + #item
  redis.call('RPUSH', KEYS[2], item)
  publish(ARGV[i], ARGV[i + 1], epoch .. '-' .. string.format('%d', last))
end
local count = redis.call('LLEN', KEYS[2])
while count > 1 and (count > tonumber(ARGV[3]) or bytes > tonumber(ARGV[4])) do
  bytes, count = bytes - #redis.call('LPOP', KEYS[2]), count - 1
end
redis.call('HSET', KEYS[1], 'last', string.format('%d', last), 'bytes', string.format('%d', bytes), 'position', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[5])
redis.call('EXPIRE', KEYS[2], ARGV[5])
return 1
"""
_READ = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return {} end
local last = tonumber(redis.call('HGET', KEYS[1], 'last'))
local first = last - redis.call('LLEN', KEYS[2]) + 1
local start = last + 1 - tonumber(ARGV[4])
if ARGV[1] == epoch then start = math.min(tonumber(ARGV[2]), last) + 1 end
start = math.max(start, first)
local found = redis.call('LRANGE', KEYS[2], start - first, start - first + tonumber(ARGV[3]) - 1)
local items, bytes = {}, 0
for i, item in ipairs(found) do
  bytes = bytes + #item
  if i > 1 and bytes > tonumber(ARGV[5]) then break end
  items[i] = item
end
return {epoch, last, start, items}
"""
_PAUSE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return end
redis.call('HSET', KEYS[1], 'position', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
"""
_EXTEND = """
if redis.call('HGET', KEYS[1], 'position') == ARGV[1] then return end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
"""
_EMPTY = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'bytes', 0)
return 1
"""
_DROP = """
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('PUBLISH', ARGV[2], cjson.encode({channel = ARGV[1], event_type = 'resync', data = '', pub_id = ''}))
"""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel and the bounds of its replay buffer, whose newest event always stays. `ttl` in seconds."""

    name: str
    max_events: int = 1000
    max_bytes: int = 256 * 1024
    ttl: int = 120
    # The host that writes it, with whose id the name begins; empty: processes of the control plane do.
    host: str = ""

    @property
    def keys(self) -> list[str]:
        return [redis_key(f"sse:{self.name}"), redis_key(f"sse:{self.name}:events")]

    @property
    def pubsub(self) -> str:
        """Return the pub/sub channel of its events: a host may publish on its own alone."""
        return redis_key(f"{PUBSUB_CHANNEL}:{self.host}" if self.host else PUBSUB_CHANNEL)


@dataclass(frozen=True, slots=True)
class ReplayPage:
    """Events from the number `start` on as (id, kind, data); `newest` is the number of the newest in the buffer."""

    epoch: str
    newest: int
    start: int
    events: list[tuple[EventId, str, str]]


class Superseded(Exception):
    """Another source has written the channel, or its buffer has expired: start again from the stored position."""


class ReplayBuffer:
    """The replay buffers of all channels, for one event loop. Raises redis.RedisError, OSError."""

    def __init__(self, client: AsyncRedis) -> None:
        self.client = client
        self._append = client.register_script(_APPEND)
        self._read = client.register_script(_READ)
        self._extend = client.register_script(_EXTEND)

    async def position(self, channel: Channel) -> str:
        """Return the position of the source; empty if there is no buffer."""
        return _text(await bounded_call(self.client.hget(channel.keys[0], "position")))

    async def append(
        self, channel: Channel, events: Sequence[tuple[str, str]], *, expected: str, position: str
    ) -> None:
        """Write events (kind, data) and move the position from `expected`. Raise Superseded; nothing is written then.

        Without events only the position moves; a buffer that does not exist begins.
        """
        args = _append_args(channel, events, expected, position)
        done = await bounded_call(self._append(keys=channel.keys, args=args))
        if not done:
            raise Superseded

    async def extend_ttl(self, channel: Channel) -> None:
        """Keep the buffer while its source has no events.

        Does nothing if there is none, and to a paused one: the process that paused it may have died.
        """
        await bounded_call(self._extend(keys=channel.keys, args=[PAUSED, channel.ttl]))

    async def read(self, channel: Channel, after: EventId | None, *, tail: int, limit: int) -> ReplayPage | None:
        """Return at most `limit` events and READ_BYTES after an id, or from the oldest; None if there is no buffer.

        Without an id, or with one of another epoch: the last `tail` events.
        """
        epoch, number = after or ("", 0)
        found = await bounded_call(self._read(keys=channel.keys, args=[epoch, number, limit, tail, READ_BYTES]))
        if not found:
            return None
        name, newest, start, items = found[0].decode(), int(found[1]), int(found[2]), found[3]
        events = [(EventId(name, start + index), *item.decode().split("\n", 1)) for index, item in enumerate(items)]
        return ReplayPage(name, newest, start, events)


def pause_channel(client: Redis, channel: Channel) -> None:
    """Stop the source until `restart_channel` or `drop_channel`; a buffer that gets neither expires after its ttl."""
    client.eval(_PAUSE, 2, *channel.keys, PAUSED, channel.ttl)


def restart_channel(client: Redis, channel: Channel, kind: str, data: str, position: str) -> None:
    """Drop the events of a paused channel, write one event, and let the source continue from `position`."""
    if client.eval(_EMPTY, 2, *channel.keys):
        client.eval(_APPEND, 2, *channel.keys, *_append_args(channel, [(kind, data)], PAUSED, position))


def drop_channel(client: Redis, channel: Channel) -> None:
    """Drop the buffer; the source begins another one, in a new epoch."""
    client.eval(_DROP, 2, *channel.keys, channel.name, channel.pubsub)


def _append_args(channel: Channel, events: Sequence[tuple[str, str]], expected: str, position: str) -> list[Any]:
    flat = [text for event in events for text in event]
    bounds = [channel.max_events, channel.max_bytes, channel.ttl]
    return [expected, position, *bounds, channel.name, channel.pubsub, secrets.token_hex(4), *flat]


def _text(found: bytes | str | None) -> str:
    return found.decode() if isinstance(found, bytes) else found or ""
