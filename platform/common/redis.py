"""Clients of Redis, and the prefix of every key and channel.

All names begin with the instance's id, so that several instances may share one Redis. Celery's broker gets the same
prefix (config/celery_settings.py). A client never adds it: the code that builds a name calls `redis_key`, so that Lua
scripts, pipelines and pub/sub channels need no rewriting.

The clients of one URL share connection pools for the life of the process. They are safe for threads and after a fork.
"""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings
from redis import Redis, RedisError
from redis.asyncio import BlockingConnectionPool as AsyncBlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
MAX_CONNECTIONS = 200
ASYNC_CONNECTIONS = 20


def redis_key(name: str) -> str:
    """Return the key or pub/sub channel of this instance."""
    return f"{settings.REDIS_PREFIX}{name}"


def redis_client() -> Redis:
    """Return the client of this process for commands that answer at once. Not to be closed."""
    return _shared_client(settings.REDIS_URL, ANSWER_SECONDS)


def blocking_client(seconds: float) -> Redis:
    """Return the client of this process for commands that block for `seconds` at most, a constant. Not to be closed.

    Its pool is separate, so that waiting requests never take the connections of those that only ask.
    """
    return _shared_client(settings.REDIS_URL, seconds + ANSWER_SECONDS)


def open_client(timeout: float) -> Redis:
    """Return a client of its own whose caller closes it. `timeout`: seconds to connect, and to wait for each answer."""
    return Redis.from_url(settings.REDIS_URL, socket_connect_timeout=timeout, socket_timeout=timeout)


def open_async_client() -> AsyncRedis:
    """Return a client for one event loop, whose caller closes it.

    Without a timeout for answers: await its calls through `common.sse.calls`, which bounds them.
    """
    pool = AsyncBlockingConnectionPool.from_url(
        settings.REDIS_URL,
        max_connections=ASYNC_CONNECTIONS,
        timeout=ANSWER_SECONDS,
        socket_timeout=None,
        socket_connect_timeout=CONNECT_SECONDS,
        health_check_interval=10,
    )
    return AsyncRedis.from_pool(pool)


def redis_is_available(timeout: float = 1.0) -> bool:
    """Return whether Redis answers a PING within `timeout` seconds."""
    try:
        with open_client(timeout) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


@lru_cache(maxsize=8)
def _shared_client(url: str, answer_seconds: float) -> Redis:
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=answer_seconds,
        max_connections=MAX_CONNECTIONS,
    )
