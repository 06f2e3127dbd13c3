"""How many API calls a workspace got: counted in memory, added to a Redis counter about once a second.

A call costs an addition here, not a round trip. A process that dies loses the count of its last second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

import redis

from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

KEPT_SECONDS = 90 * 86400
EVERY_SECONDS = 1.0
MAX_WAITING = 10_000  # workspaces, while Redis is away

_lock = threading.Lock()
_waiting: Counter[str] = Counter()
_some = threading.Event()
_thread: threading.Thread | None = None


def calls_key(workspace_id: str) -> str:
    return redis_key(f"usage:{workspace_id}:calls")


def count_call(workspace_id: str) -> None:
    """Count one request that names this workspace."""
    global _thread  # noqa: PLW0603 one for each process
    with _lock:
        _waiting[workspace_id] += 1
        if _thread is None or not _thread.is_alive():  # also after a fork
            _thread = threading.Thread(target=_work, name="api-calls", daemon=True)
            _thread.start()
    _some.set()


def unflushed_calls(workspace_id: str) -> int:
    """Calls that this process has counted and not told Redis yet."""
    return _waiting[workspace_id]


def flush_calls() -> None:
    """Tell Redis. What it does not take is told later."""
    with _lock:
        taken = dict(_waiting)
        _waiting.clear()
    try:
        with redis_client().pipeline(transaction=False) as pipe:
            for workspace_id, count in taken.items():
                pipe.incrby(calls_key(workspace_id), count)
                pipe.expire(calls_key(workspace_id), KEPT_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("API calls: %s", exc)
        with _lock:
            if len(_waiting) < MAX_WAITING:
                _waiting.update(taken)


def delete_calls(workspace_id: str) -> None:
    """Raises redis.RedisError."""
    with _lock:
        _waiting.pop(workspace_id, None)
    redis_client().delete(calls_key(workspace_id))


def _work() -> None:
    while True:
        _some.wait()
        _some.clear()
        time.sleep(EVERY_SECONDS)
        flush_calls()
