"""How many sockets a machine has, over all processes of streams.

Each process publishes its number of them in Redis with a lease, which it renews while it has any: those of a killed
process stop counting when its lease is over. While Redis does not answer each process counts its own.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from weakref import WeakKeyDictionary, WeakValueDictionary

import redis

from common.async_threads import in_pool_thread
from common.errors import RateLimited
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

# A killed process is started again, and its clients are back, in about this time.
LEASE_SECONDS = 6.0
RENEW_SECONDS = 2.0

# A hash of processes, with their numbers and the ends of their leases in milliseconds, by the clock of Redis. A lease
# that ends later than any that is given now is one of before the clock was set back.
_PUBLISH = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease, own, others = tonumber(ARGV[3]), tonumber(ARGV[2]), 0
local found = redis.call('HGETALL', KEYS[1])
for place = 1, #found, 2 do
  local count, ends = string.match(found[place + 1], '(%d+) (%d+)')
  if found[place] ~= ARGV[1] then
    if tonumber(ends) > now and tonumber(ends) <= now + lease then
      others = others + tonumber(count)
    else
      redis.call('HDEL', KEYS[1], found[place])
    end
  end
end
if own + others > tonumber(ARGV[4]) then return own + others end
if own == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%d %d', own, now + lease))
  redis.call('PEXPIRE', KEYS[1], lease)
end
return 0
"""
NO_LIMIT = 1 << 30


class SocketPlaces:
    """The places of the sockets of one event loop. `kind`: sockets of another one have places of their own."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._process = secrets.token_hex(8)
        self._own: Counter[str] = Counter()
        self._left: set[str] = set()  # with fewer than were published
        self._changed = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._renewing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def socket_place(self, machine_id: str, limit: int) -> AsyncIterator[None]:
        """Within the context one socket more counts. Raise RateLimited if the machine has as many as it may."""
        await self._reserve(machine_id, limit)
        try:
            yield
        finally:
            self._own[machine_id] -= 1
            self._left.add(machine_id)
            self._changed.set()
            self._keep_renewing()

    async def _reserve(self, machine_id: str, limit: int) -> None:
        lock = self._locks.setdefault(machine_id, asyncio.Lock())
        async with lock:
            own = self._own[machine_id] + 1
            if own > limit or await in_pool_thread(self._publish, {machine_id: own}, limit):
                message = f"At most {limit} sockets are open at once here."
                raise RateLimited(message, headers={"Retry-After": "5"}, details={"current": limit, "max": limit})
            self._own[machine_id] += 1
        self._keep_renewing()

    def _keep_renewing(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.ensure_future(self._renew_while_any())

    async def _renew_while_any(self) -> None:
        while counts := {machine: self._own[machine] for machine in {*self._own, *self._left}}:
            self._changed.clear()
            self._left.clear()
            self._own = +self._own  # without those that have none
            await in_pool_thread(self._publish, counts, NO_LIMIT)
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._changed.wait()

    def _publish(self, counts: Mapping[str, int], limit: int) -> bool:
        """In a thread. Whether any is above the limit, and so was not published."""
        try:
            with redis_client().pipeline(transaction=False) as pipe:
                for machine, count in counts.items():
                    key = redis_key(f"{self._kind}-sockets:{machine}")
                    pipe.eval(_PUBLISH, 1, key, self._process, count, int(LEASE_SECONDS * 1000), limit)
                return any(pipe.execute())
        except redis.RedisError as exc:
            logger.warning("each process counts the sockets of machines alone: %s", exc)
            return False


def socket_places(kind: str) -> SocketPlaces:
    """Return the places of a kind of sockets, for the running event loop."""
    of_loop = _by_loop.setdefault(asyncio.get_running_loop(), {})
    if kind not in of_loop:
        of_loop[kind] = SocketPlaces(kind)
    return of_loop[kind]


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, SocketPlaces]] = WeakKeyDictionary()
