"""The number of API calls of a workspace: counted in memory, added to a Redis counter about once a second.

A call costs an addition, not a round trip. A process that dies loses the calls of its last second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import redis

from common.redis import redis_client, redis_key

T = TypeVar("T")
logger = logging.getLogger(__name__)

EXPIRY_SECONDS = 90 * 86400
FLUSH_SECONDS = 1.0
MAX_PENDING = 10_000  # workspaces, while Redis is down
READ_ATTEMPTS = 10
RETRY_SECONDS = 0.002  # about as long as a flush takes

_lock = threading.Lock()
_pending: Counter[str] = Counter()
# Numbers of flushes that began and that ended. During a flush its calls may be in Redis or not.
_begun = 0
_ended = 0
_has_pending = threading.Event()
_thread: threading.Thread | None = None


def calls_key(workspace_id: str) -> str:
    return redis_key(f"usage:{workspace_id}:calls")


def count_call(workspace_id: str) -> None:
    """Count one request that names this workspace."""
    global _thread  # noqa: PLW0603 one for each process
    with _lock:
        _pending[workspace_id] += 1
        if _thread is None or not _thread.is_alive():  # also after a fork
            _thread = threading.Thread(target=_work, name="api-calls", daemon=True)
            _thread.start()
    _has_pending.set()


def unflushed_calls(workspace_id: str) -> int:
    """Return the calls that this process has counted and not flushed yet."""
    return _pending[workspace_id]


def add_unflushed(workspace_id: str, read: Callable[[], tuple[T, int]]) -> tuple[T, int]:
    """Return what `read` finds in Redis, with the calls that are not there yet added to its count.

    If a flush came in between, `read` is called again: the flushed calls would count twice or not at all. Raise what
    `read` raises.
    """
    for attempt in range(READ_ATTEMPTS):
        time.sleep(RETRY_SECONDS * attempt)
        with _lock:
            before, is_flushing, waiting = _begun, _begun != _ended, _pending[workspace_id]
        found, count = read()
        if not is_flushing and before == _begun:
            break
    return found, count + waiting


def flush_calls() -> None:
    """Add the counts to Redis. If that fails, they are flushed later."""
    global _begun, _ended  # noqa: PLW0603 one for each process
    with _lock:
        counts = dict(_pending)
        _pending.clear()
        _begun += 1
    left: dict[str, int] = {}
    try:
        with redis_client().pipeline(transaction=False) as pipe:
            for workspace_id, count in counts.items():
                pipe.incrby(calls_key(workspace_id), count)
                pipe.expire(calls_key(workspace_id), EXPIRY_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("API calls could not be counted in Redis yet: %s", exc)
        left = counts
    finally:
        with _lock:
            _ended += 1
            if len(_pending) < MAX_PENDING:
                _pending.update(left)


def delete_calls(workspace_id: str) -> None:
    """Remove the counter of a workspace. Raise redis.RedisError."""
    with _lock:
        _pending.pop(workspace_id, None)
    redis_client().delete(calls_key(workspace_id))


def _work() -> None:
    while True:
        _has_pending.wait()
        _has_pending.clear()
        time.sleep(FLUSH_SECONDS)
        flush_calls()
