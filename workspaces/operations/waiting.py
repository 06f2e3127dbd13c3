"""Waiting for the outcome of an operation: Redis wakes the request, the row decides.

A waiting request occupies a thread of the api process, so the number of waiting requests of a process is capped, and
that of one account at three quarters of it; beyond it the caller gets 202 at once. A request that misses its wake-up
(Redis is down) reads the row every few seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import redis
from django.conf import settings

from common.capacity import AccountCapacity, CapacityUsedUp
from common.connections import release_connection
from common.redis import blocking_client, redis_client, redis_key
from common.traces import span
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE

logger = logging.getLogger(__name__)
T = TypeVar("T")

CHUNK_SECONDS = 3
WITHOUT_REDIS_SECONDS = 0.5
ANNOUNCEMENT_SECONDS = 600


@lru_cache(maxsize=1)
def waiting_capacity() -> AccountCapacity:
    """Return the places for waiting requests of this process."""
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
        logger.warning("the outcome of %s could not be announced: %s", operation_id, exc)


def wait_for_outcome(operation: Operation, timeout: float) -> Operation | None:
    """Return the operation as it ended. Return None if it is still in flight after `timeout` seconds, or if too many
    requests wait.

    If its row is gone (its workspace was deleted), the operation is returned as it was given, without a state of its
    own.
    """
    try:
        account_id = operation.workspace.account_id
    except Workspace.DoesNotExist:
        return operation
    return wait_for_row(operation.pk, account_id, timeout, lambda: _ended(operation))


def _ended(operation: Operation) -> Operation | None:
    row = Operation.objects.filter(pk=operation.pk).first()
    if row is None:
        return operation
    return None if row.state in LIVE else row


def wait_for_row(operation_id: str, account_id: str, timeout: float, read_ended: Callable[[], T | None]) -> T | None:
    """Wait until `read_ended` finds something and return it.

    `read_ended` returns None while an operation, of any app, is in flight. It is called at first, after each
    announcement, and every few seconds. Return None after `timeout` seconds, or if too many requests wait.
    """
    try:
        with waiting_capacity().reserve(account_id), span("wait for operation", operation_id=operation_id):
            return wait_in_place(operation_id, timeout, read_ended)
    except CapacityUsedUp:
        return None


def wait_in_place(operation_id: str, timeout: float, read_ended: Callable[[], T | None]) -> T | None:
    """Do what `wait_for_row` does, for a caller that has reserved its place (`waiting_capacity`)."""
    until = time.monotonic() + timeout
    while True:
        found = read_ended()
        if found is not None:
            return found
        left = until - time.monotonic()
        if left <= 0:
            return None
        _wait_for_announcement(operation_id, min(left, CHUNK_SECONDS))


def _wait_for_announcement(operation_id: str, seconds: float) -> None:
    release_connection()
    try:
        if blocking_client(CHUNK_SECONDS).blpop([_key(operation_id)], timeout=seconds):
            announce_outcome(operation_id)  # other requests may wait for the same operation
    except redis.RedisError:
        time.sleep(min(seconds, WITHOUT_REDIS_SECONDS))
