"""How many clients have an event stream or a WebSocket open, over all processes of streams, for `/metrics`.

A thread of each process writes its numbers into one hash of Redis with the end of their lease, and again while it has
any: those of a killed process stop counting when its lease is over. While Redis does not answer nothing is written.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import RedisError

from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

EVENTS, SOCKETS = "events", "sockets"
KINDS = (EVENTS, SOCKETS)
RENEW_SECONDS = 2.0
LEASE_SECONDS = 10


@contextmanager
def client_open(kind: str) -> Iterator[None]:
    """Within the context one client more counts. Waits for nothing."""
    _own.change(kind, 1)
    try:
        yield
    finally:
        _own.change(kind, -1)


def open_clients() -> dict[str, int]:
    """Return the clients of all processes by kind. Raise RedisError."""
    with redis_client().pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hgetall(_key())
        (now, _), found = pipe.execute()
    written = [json.loads(value) for value in found.values()]
    # A lease that ends later than any that is given now is one of before the clock was set back.
    valid = [counts for counts in written if now < counts["ends"] <= now + LEASE_SECONDS]
    return {kind: sum(counts.get(kind, 0) for counts in valid) for kind in KINDS}


class _OpenClients:
    """The open clients of this process. Safe in many threads."""

    def __init__(self) -> None:
        self._loaded = secrets.token_hex(8)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def _process(self) -> str:
        """Return the id of this process, also in a fork of the process that has loaded this module."""
        return f"{self._loaded}.{os.getpid()}"

    def change(self, kind: str, by: int) -> None:
        with self._lock:
            self._counts[kind] += by
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._write_while_any, name="stream-clients", daemon=True)
                self._thread.start()

    def _write_while_any(self) -> None:
        """Write the counts until there are none, and that was written."""
        while True:
            counts = dict(self._counts)
            self._write(counts)
            with self._lock:
                if not any(counts.values()) and not any(self._counts.values()):
                    self._thread = None
                    return
            time.sleep(RENEW_SECONDS)

    def _write(self, counts: dict[str, Any]) -> None:
        client = redis_client()
        try:
            if not any(counts.values()):
                client.hdel(_key(), self._process)
                return
            seconds, _ = client.time()
            client.hset(_key(), self._process, json.dumps({**counts, "ends": seconds + LEASE_SECONDS}))
            client.expire(_key(), LEASE_SECONDS)
        except RedisError as exc:
            logger.debug("the clients of streams cannot be counted: %s", exc)


_own = _OpenClients()


def _key() -> str:
    return redis_key("stream-clients")
