"""When a workspace was last used: requests through the edge, API calls that touch the guest, open terminals.

Kept in Redis, as it changes with each request: a sorted set per workspace, one member per use that goes on (its score
is when it is over at the latest) and one for the last that ended. Losing it costs a sleep that comes too early, and
the next request wakes the workspace.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)
_touched_at: dict[str, float] = {}

KEPT_SECONDS = 2 * 86400
# Between two writes to Redis for one workspace: most requests cost no round trip, and transfers few.
REQUEST_INTERVAL_SECONDS = 5.0
TRANSFER_INTERVAL_SECONDS = 20.0  # well below the shortest idle time
MAX_REMEMBERED = 10_000
LAST = "last"


def _key(workspace_id: str) -> str:
    return redis_key(f"activity:{workspace_id}")


def record_use(workspace_id: str) -> None:
    """The workspace was used now. Without Redis nothing is noted."""
    _note(workspace_id, LAST, time.time())


@contextmanager
def in_use(workspace_id: str, seconds: float) -> Iterator[None]:
    """In use while this lasts; a process that dies in it stops counting after `seconds`."""
    member = secrets.token_hex(8)
    _note(workspace_id, member, time.time() + seconds)
    try:
        yield
    finally:
        _note(workspace_id, LAST, time.time(), over=member)


def last_used(workspace_id: str) -> float:
    """Seconds since the epoch; in the future while it is in use, 0 where no use is known. Raises redis.RedisError."""
    found = redis_client().zrange(_key(workspace_id), -1, -1, withscores=True)
    return float(found[0][1]) if found else 0.0


def is_in_use(workspace_id: str, within: float) -> bool:
    """Whether it was used within that many seconds. Yes where Redis does not say: a use is never interrupted."""
    try:
        return time.time() - last_used(workspace_id) < within
    except redis.RedisError as exc:
        logger.warning("activity of %s: %s", workspace_id, exc)
        return True


def _note(workspace_id: str, member: str, score: float, *, over: str = "") -> None:
    try:
        with redis_client().pipeline() as pipe:
            pipe.zadd(_key(workspace_id), {member: score}, gt=True)
            if over:
                pipe.zrem(_key(workspace_id), over)
            pipe.expire(_key(workspace_id), KEPT_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("activity of %s: %s", workspace_id, exc)


def record_request(workspace_id: str) -> None:
    """A request through the edge, recorded at most once in REQUEST_INTERVAL_SECONDS for one workspace and process."""
    now = time.monotonic()
    if now - _touched_at.get(workspace_id, -REQUEST_INTERVAL_SECONDS) < REQUEST_INTERVAL_SECONDS:
        return
    if len(_touched_at) >= MAX_REMEMBERED:
        _touched_at.clear()
    _touched_at[workspace_id] = now
    record_use(workspace_id)


class TransferUse:
    """A transfer that keeps its workspace awake; call it with each chunk.

    Redis is written at most once in TRANSFER_INTERVAL_SECONDS.
    """

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._touched_at = time.monotonic()  # `address_of` touched it at the beginning

    def touch(self) -> None:
        """For a thread: it may wait for Redis."""
        if self._is_due():
            record_use(self._workspace_id)

    async def arecord(self) -> None:
        """For an event loop, which does not wait."""
        if self._is_due():
            await asyncio.to_thread(record_use, self._workspace_id)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._touched_at < TRANSFER_INTERVAL_SECONDS:
            return False
        self._touched_at = now
        return True
