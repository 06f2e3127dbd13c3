"""When a workspace was last used: requests through the edge, API calls that touch the guest, open terminals.

Stored in Redis, as it changes with each request: a sorted set per workspace, with one member for each current use (its
score is the latest time at which it ends) and one for the last that ended. Losing it can cause one early sleep, and the
next request wakes the workspace.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from common.async_views import in_pool_thread
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)
_recorded_at: dict[str, float] = {}

EXPIRY_SECONDS = 2 * 86400
# Between two writes to Redis for one workspace: most requests cost no round trip, and transfers few.
REQUEST_INTERVAL_SECONDS = 5.0
TRANSFER_INTERVAL_SECONDS = 20.0  # well below the shortest idle time
MAX_REMEMBERED = 10_000
LAST = "last"


def _key(workspace_id: str) -> str:
    return redis_key(f"last-used:{workspace_id}")


def record_use(workspace_id: str) -> None:
    """Record a use of the workspace now. Without Redis nothing is recorded."""
    _write_use(workspace_id, LAST, time.time())


@contextmanager
def in_use(workspace_id: str, seconds: float) -> Iterator[None]:
    """In use within the context; where the process dies, for at most `seconds`."""
    member = secrets.token_hex(8)
    _write_use(workspace_id, member, time.time() + seconds)
    try:
        yield
    finally:
        _write_use(workspace_id, LAST, time.time(), ended=member)


def last_used(workspace_id: str) -> float:
    """Seconds since the epoch; in the future while it is in use, 0 where no use is known. Raises redis.RedisError."""
    members = redis_client().zrange(_key(workspace_id), -1, -1, withscores=True)
    return float(members[0][1]) if members else 0.0


def is_in_use(workspace_id: str, within: float) -> bool:
    """Whether it was used within that many seconds. True where Redis does not answer: a use is never interrupted."""
    try:
        return time.time() - last_used(workspace_id) < within
    except redis.RedisError as exc:
        logger.warning("last use of %s: %s", workspace_id, exc)
        return True


def _write_use(workspace_id: str, member: str, score: float, *, ended: str = "") -> None:
    try:
        with redis_client().pipeline() as pipe:
            pipe.zadd(_key(workspace_id), {member: score}, gt=True)
            if ended:
                pipe.zrem(_key(workspace_id), ended)
            pipe.expire(_key(workspace_id), EXPIRY_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("last use of %s: %s", workspace_id, exc)


def record_request(workspace_id: str) -> None:
    """A request through the edge, recorded at most once in REQUEST_INTERVAL_SECONDS for one workspace and process."""
    now = time.monotonic()
    if now - _recorded_at.get(workspace_id, -REQUEST_INTERVAL_SECONDS) < REQUEST_INTERVAL_SECONDS:
        return
    if len(_recorded_at) >= MAX_REMEMBERED:
        _recorded_at.clear()
    _recorded_at[workspace_id] = now
    record_use(workspace_id)


class TransferUse:
    """A transfer that keeps its workspace awake; record each chunk.

    Redis is written at most once in TRANSFER_INTERVAL_SECONDS.
    """

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._recorded_at = time.monotonic()  # `address_of` recorded the use at the beginning

    def record_chunk(self) -> None:
        """For threads: waits for Redis."""
        if self._is_due():
            record_use(self._workspace_id)

    async def arecord_chunk(self) -> None:
        """For event loops."""
        if self._is_due():
            await in_pool_thread(record_use, self._workspace_id)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._recorded_at < TRANSFER_INTERVAL_SECONDS:
            return False
        self._recorded_at = now
        return True
