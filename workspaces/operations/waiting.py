"""Waiting for an operation's end: Redis rings, the row is the truth.

A request that waits holds a thread of the api process, so there is a cap on how many wait in one process; past it the
caller gets 202 at once. A waiter that misses the bell (Redis away, announced twice) reads the row every few seconds.
"""

from __future__ import annotations

import logging
import time
from functools import lru_cache
from threading import BoundedSemaphore

import redis
from django.conf import settings

from common.connections import release_connection
from common.redis import blocking_client, redis_client, redis_key
from workspaces.models import Operation
from workspaces.models.operation import LIVE

logger = logging.getLogger(__name__)

CHUNK_SECONDS = 3
WITHOUT_REDIS_SECONDS = 0.5
ANNOUNCEMENT_SECONDS = 600


@lru_cache(maxsize=1)
def _places() -> BoundedSemaphore:
    return BoundedSemaphore(settings.ENV.api_waiters)


def _key(operation_id: str) -> str:
    return redis_key(f"operation:{operation_id}")


def announce_outcome(operation_id: str) -> None:
    """Ring for everybody who waits. Losing it costs a waiter a few seconds, never the answer."""
    try:
        with redis_client().pipeline() as pipe:
            pipe.rpush(_key(operation_id), b"1")
            pipe.expire(_key(operation_id), ANNOUNCEMENT_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("could not announce %s: %s", operation_id, exc)


def wait_for_outcome(operation: Operation, timeout: float) -> Operation | None:
    """The operation as it ended, or None: still going after `timeout` seconds, or too many wait already.

    An operation whose row is gone (its workspace was deleted) is returned as it was given, without a state of its own.
    """
    if not _places().acquire(blocking=False):
        return None
    try:
        return _wait(operation, time.monotonic() + timeout)
    finally:
        _places().release()


def _wait(operation: Operation, until: float) -> Operation | None:
    while True:
        row = Operation.objects.filter(pk=operation.pk).first()
        if row is None:
            return operation
        if row.state not in LIVE:
            return row
        left = until - time.monotonic()
        if left <= 0:
            return None
        _listen(operation.pk, min(left, CHUNK_SECONDS))


def _listen(operation_id: str, seconds: float) -> None:
    release_connection()
    try:
        if blocking_client(CHUNK_SECONDS).blpop([_key(operation_id)], timeout=seconds):
            announce_outcome(operation_id)  # others may wait for the same end
    except redis.RedisError:
        time.sleep(min(seconds, WITHOUT_REDIS_SECONDS))
