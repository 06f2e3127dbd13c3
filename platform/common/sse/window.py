"""A channel's last events in Redis, and where its source stands.

    sse:<channel>          hash: epoch, last (number of the newest event), bytes, position
    sse:<channel>:events   list: the newest events, "KIND\nDATA" each

Each change is one script, so that no death in between leaves a half: an event is numbered, kept, announced, and its
source's position moved, or none of it. `append` moves the position only from the one it was told (compare-and-set): of
two sources that both believe to be the only one, the second to write finds out, and nothing is told twice.

A window lives `keep` seconds longer than its source. A later one begins a new epoch, by which clients that come back
know that they may have missed something.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from common.redis import redis_key
from common.sse.client import asked
from common.sse.frames import EventId

# The one channel of Redis on which all processes are told of all events, and the form in which: django-eventstream's.
BELL = "events_channel"
# Not an event: the channel's window began, or must be read again.
LOOK = "look"
# What one read gives, but for an event that is larger: each stream holds as much while its client does not read.
READ_BYTES = 32 * 1024
# Position of a source that must wait: what it reads is being changed.
HELD = "held"

_APPEND = """
local position = redis.call('HGET', KEYS[1], 'position')
if (position or '') ~= ARGV[1] then return 0 end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
local function tell(kind, data, id)
  redis.call('PUBLISH', ARGV[7], cjson.encode({channel = ARGV[6], event_type = kind, data = data, pub_id = id}))
end
if not epoch then
  epoch = ARGV[8]
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'last', 0, 'bytes', 0)
  tell('look', '', '')
end
local last = tonumber(redis.call('HGET', KEYS[1], 'last'))
local bytes = tonumber(redis.call('HGET', KEYS[1], 'bytes'))
for i = 9, #ARGV, 2 do
  local item = ARGV[i] .. '\\n' .. ARGV[i + 1]
  last, bytes = last + 1, bytes + #item
  redis.call('RPUSH', KEYS[2], item)
  tell(ARGV[i], ARGV[i + 1], epoch .. '-' .. string.format('%d', last))
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
_HOLD = """
if redis.call('EXISTS', KEYS[1]) == 0 then return end
redis.call('HSET', KEYS[1], 'position', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
"""
_KEEP = """
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
_FORGET = """
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('PUBLISH', ARGV[2], cjson.encode({channel = ARGV[1], event_type = 'look', data = '', pub_id = ''}))
"""


@dataclass(frozen=True, slots=True)
class Channel:
    """`events` and `size` (bytes) bound its window, of which the newest event always stays; `keep` in seconds."""

    name: str
    events: int = 1000
    size: int = 256 * 1024
    keep: int = 120

    @property
    def keys(self) -> list[str]:
        return [redis_key(f"sse:{self.name}"), redis_key(f"sse:{self.name}:events")]


@dataclass(frozen=True, slots=True)
class Held:
    """Events from `start` on as (id, kind, data); `last` is the number of the newest that there is."""

    epoch: str
    last: int
    start: int
    events: list[tuple[EventId, str, str]]


class Superseded(Exception):
    """Another source has written the channel, or its window is gone: begin again from what is there."""


class Window:
    """Windows as an event loop reads and writes them. Raises redis.RedisError, OSError."""

    def __init__(self, client: AsyncRedis) -> None:
        self.client = client
        self._append = client.register_script(_APPEND)
        self._read = client.register_script(_READ)
        self._keep = client.register_script(_KEEP)

    async def position(self, channel: Channel) -> str:
        """Where the source stands; empty where there is no window."""
        return _text(await asked(self.client.hget(channel.keys[0], "position")))

    async def append(
        self, channel: Channel, events: Sequence[tuple[str, str]], *, expected: str, position: str
    ) -> None:
        """Write events (kind, data) and move the position from `expected`. Raises Superseded; nothing is written then.

        Without events the window is begun, or its position moved.
        """
        args = _append_args(channel, events, expected, position)
        done = await asked(self._append(keys=channel.keys, args=args))
        if not done:
            raise Superseded

    async def keep(self, channel: Channel) -> None:
        """Let the window live on while its source has nothing to tell.

        Nothing happens where there is none, and to one that is held: who holds it may have died.
        """
        await asked(self._keep(keys=channel.keys, args=[HELD, channel.keep]))

    async def read(self, channel: Channel, after: EventId | None, *, tail: int, limit: int) -> Held | None:
        """At most `limit` events and READ_BYTES after an id, from the oldest held; None where there is no window.

        Without an id, and with one of another epoch, the last `tail` events.
        """
        epoch, number = after or ("", 0)
        found = await asked(self._read(keys=channel.keys, args=[epoch, number, limit, tail, READ_BYTES]))
        if not found:
            return None
        name, last, start, items = found[0].decode(), int(found[1]), int(found[2]), found[3]
        events = [(EventId(name, start + index), *item.decode().split("\n", 1)) for index, item in enumerate(items)]
        return Held(name, last, start, events)


def hold(client: Redis, channel: Channel) -> None:
    """Nothing is written to the channel until `restart` or `forget`; a window that gets neither ends by itself."""
    client.eval(_HOLD, 2, *channel.keys, HELD, channel.keep)


def restart(client: Redis, channel: Channel, kind: str, data: str, position: str) -> None:
    """Drop what a held window has, write one event, and let the source go on from `position`."""
    if client.eval(_EMPTY, 2, *channel.keys):
        client.eval(_APPEND, 2, *channel.keys, *_append_args(channel, [(kind, data)], HELD, position))


def forget(client: Redis, channel: Channel) -> None:
    """Drop the window; its source begins another."""
    client.eval(_FORGET, 2, *channel.keys, channel.name, redis_key(BELL))


def _append_args(channel: Channel, events: Sequence[tuple[str, str]], expected: str, position: str) -> list[Any]:
    flat = [text for event in events for text in event]
    bounds = [channel.events, channel.size, channel.keep]
    return [expected, position, *bounds, channel.name, redis_key(BELL), secrets.token_hex(4), *flat]


def _text(found: bytes | str | None) -> str:
    return found.decode() if isinstance(found, bytes) else found or ""
