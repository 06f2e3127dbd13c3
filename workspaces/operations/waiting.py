"""Waiting for the outcome of an operation: Redis wakes the request, the row decides.

A waiting request occupies a thread of the api process, so the number of waiting requests of a process is capped, and
that of one account at three quarters of it; beyond it the caller gets 202 at once. A request that misses its wake-up
(Redis is down) reads the row every few seconds.
"""

from __future__ import annotations

import logging
import time
from functools import lru_cache

import redis
from django.conf import settings

from common.capacity import AccountCapacity, CapacityUsedUp
from common.connections import release_connection
from common.redis import blocking_client, redis_client, redis_key
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE

logger = logging.getLogger(__name__)

CHUNK_SECONDS = 3
WITHOUT_REDIS_SECONDS = 0.5
ANNOUNCEMENT_SECONDS = 600


@lru_cache(maxsize=1)
def waiting_capacity() -> AccountCapacity:
    """The places for waiting requests of this process."""
    places = settings.ENV.api_waiters
    return AccountCapacity(places, max(1, places * 3 // 4))


def _key(operation_id: str) -> str:
    return redis_key(f"operation:{operation_id}")


def announce_outcome(operation_id: str) -> None:
    """Wake the waiting requests. A lost wake-up delays a response by a few seconds."""
    try:
        with redis_client().pipeline() as pipe:
            pipe.rpush(_key(operation_id), b"1")
            pipe.expire(_key(operation_id), ANNOUNCEMENT_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("could not announce %s: %s", operation_id, exc)


def wait_for_outcome(operation: Operation, timeout: float) -> Operation | None:
    """The operation as it ended, or None: still in flight after `timeout` seconds, or too many requests wait.

    An operation whose row is gone (its workspace was deleted) is returned as it was given, without a state of its own.
    """
    try:
        with waiting_capacity().reserve(operation.workspace.account_id):
            return _wait(operation, time.monotonic() + timeout)
    except CapacityUsedUp:
        return None
    except Workspace.DoesNotExist:
        return operation


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
        _wait_for_announcement(operation.pk, min(left, CHUNK_SECONDS))


def _wait_for_announcement(operation_id: str, seconds: float) -> None:
    release_connection()
    try:
        if blocking_client(CHUNK_SECONDS).blpop([_key(operation_id)], timeout=seconds):
            announce_outcome(operation_id)  # other requests may wait for the same operation
    except redis.RedisError:
        time.sleep(min(seconds, WITHOUT_REDIS_SECONDS))
