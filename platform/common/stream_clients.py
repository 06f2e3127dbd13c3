"""How many clients have an event stream or a WebSocket open, over all processes of streams, for `/metrics`.

Each process writes its numbers into one hash of Redis with the end of their lease, and again while it has any: those of
a killed process stop counting when its lease is over. While Redis does not answer nothing is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import RedisError

from common.async_views import in_pool_thread
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

EVENTS, SOCKETS = "events", "sockets"
KINDS = (EVENTS, SOCKETS)
RENEW_SECONDS = 2.0
LEASE_SECONDS = 10


@contextmanager
def client_open(kind: str) -> Iterator[None]:
    """Within the context one client more counts. On an event loop; waits for nothing."""
    own = _clients.setdefault(asyncio.get_running_loop(), _OpenClients())
    own.change(kind, 1)
    try:
        yield
    finally:
        own.change(kind, -1)


def open_clients() -> dict[str, int]:
    """By kind, of all processes. Raises RedisError."""
    with redis_client().pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hgetall(_key())
        (now, _), found = pipe.execute()
    written = [json.loads(value) for value in found.values()]
    # A lease that ends later than any that is given now is one of before the clock was set back.
    valid = [counts for counts in written if now < counts["ends"] <= now + LEASE_SECONDS]
    return {kind: sum(counts.get(kind, 0) for counts in valid) for kind in KINDS}


class _OpenClients:
    """Those of one event loop."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(8)
        self._own: Counter[str] = Counter()
        self._writing: asyncio.Task[None] | None = None

    def change(self, kind: str, by: int) -> None:
        self._own[kind] += by
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write_while_any())

    async def _write_while_any(self) -> None:
        """Until it has written that there are none."""
        while True:
            counts = dict(self._own)
            await in_pool_thread(self._write, counts)
            if not any(counts.values()) and not any(self._own.values()):
                return
            await asyncio.sleep(RENEW_SECONDS)

    def _write(self, counts: dict[str, Any]) -> None:
        """In a thread."""
        client = redis_client()
        try:
            if not any(counts.values()):
                client.hdel(_key(), self._process)
                return
            seconds, _ = client.time()
            client.hset(_key(), self._process, json.dumps({**counts, "ends": seconds + LEASE_SECONDS}))
            client.expire(_key(), LEASE_SECONDS)
        except RedisError as exc:
            logger.debug("the clients of streams are not counted: %s", exc)


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OpenClients] = weakref.WeakKeyDictionary()


def _key() -> str:
    return redis_key("stream-clients")
