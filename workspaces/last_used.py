"""Last use of a workspace: requests through the edge, API calls that touch the guest, open terminals.

It is stored in Redis, as it changes with each request: a sorted set per workspace, with one member for each current use
(its score is the latest time at which it ends) and one for the last that ended. Losing it can cause one early sleep,
and the next request wakes the workspace. A member says how long its use takes at most. So a score that no use can have
now is known to be from before the clock was set back, and is written again as if the use began now.

Uses of one workspace that overlap in a process, and have the same longest duration, share a member, whose score may be
REQUEST_INTERVAL_SECONDS too early: many short commands at once cost few writes.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from common.async_threads import in_pool_thread
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)
_recorded_at: dict[str, float] = {}

EXPIRY_SECONDS = 2 * 86400
# Seconds between two writes to Redis for one workspace: most requests cost no round trip, and transfers few. All are
# well below the shortest idle time.
REQUEST_INTERVAL_SECONDS = 5.0
TRANSFER_INTERVAL_SECONDS = 20.0
MAX_REMEMBERED = 10_000
LAST = "last"
CLOCKS_APART_SECONDS = 5.0  # of the processes that write and read


def _key(workspace_id: str) -> str:
    return redis_key(f"last-used:{workspace_id}")


def record_use(workspace_id: str) -> None:
    """Record a use of the workspace now. Without Redis nothing is recorded."""
    _write_use(workspace_id, LAST, time.time())


@contextmanager
def in_use(workspace_id: str, seconds: float) -> Iterator[None]:
    """Count the workspace as in use within the context. If the process dies, that lasts for at most `seconds`."""
    use = _enter(workspace_id, seconds)
    try:
        use.record()
        yield
    finally:
        if _leave(use):
            use.record_end()


@asynccontextmanager
async def in_use_async(workspace_id: str, seconds: float) -> AsyncIterator[None]:
    """Do what `in_use` does, for event loops. Redis is written in a thread, and only if another use has not just done
    it.
    """
    use = _enter(workspace_id, seconds)
    try:
        if not use.is_recorded():
            await in_pool_thread(use.record)
        yield
    finally:
        if _leave(use):
            await in_pool_thread(use.record_end)


@dataclass(slots=True)
class _Use:
    """Group of uses that overlap: `users` of them now. Another use begins a group with a name of its own, so that it
    may be recorded while the end of this group is recorded.
    """

    workspace_id: str
    seconds: float
    name: str
    users: int = 0
    recorded_until: float = 0.0

    def is_recorded(self) -> bool:
        """Return whether a use that begins now is recorded already, up to its end or a little less. False once the
        clock was set back.
        """
        left = self.recorded_until - time.time()
        return self.seconds - REQUEST_INTERVAL_SECONDS < left <= self.seconds

    def record(self) -> None:
        """Record a use that begins now."""
        until = time.time() + self.seconds
        if not self.is_recorded() and _write_use(self.workspace_id, self.name, until):
            self.recorded_until = until

    def record_end(self) -> None:
        """Record that all of these uses are over."""
        _write_use(self.workspace_id, LAST, time.time(), ended=self.name)


_uses_lock = threading.Lock()
_current_uses: dict[tuple[str, float], _Use] = {}


def _enter(workspace_id: str, seconds: float) -> _Use:
    with _uses_lock:
        use = _current_uses.get((workspace_id, seconds))
        if use is None:
            name = f"{secrets.token_hex(8)}:{seconds:.0f}"
            use = _current_uses[workspace_id, seconds] = _Use(workspace_id, seconds, name)
        use.users += 1
        return use


def _leave(use: _Use) -> bool:
    """End a use. Return whether it was the last of its group."""
    with _uses_lock:
        use.users -= 1
        if not use.users:
            del _current_uses[use.workspace_id, use.seconds]
        return not use.users


def last_used(workspace_id: str) -> float:
    """Return the time of the last use in seconds since the epoch: in the future while the workspace is in use, 0 if no
    use is known. Raise redis.RedisError.
    """
    for member, score in _uses(workspace_id, -1).items():
        late = score > _latest_end(member) + CLOCKS_APART_SECONDS
        return _correct_uses(workspace_id) if late else score
    return 0.0


def _uses(workspace_id: str, first: int) -> dict[str, float]:
    """Return the members from that place on, by their scores."""
    found: list[Any] = redis_client().zrange(_key(workspace_id), first, -1, withscores=True)
    return {member.decode(): float(score) for member, score in found}


def _latest_end(member: str) -> float:
    """Return the latest time at which a use that is recorded now may end."""
    length = member.partition(":")[2]
    return time.time() + (float(length) if length else 0.0)


def _correct_uses(workspace_id: str) -> float:
    """Write each end that is too late as the end of a use that begins now. Return the last end. A use that is recorded
    or ends at the same time is kept: ends only become earlier, and no member is made.
    """
    ends = {member: min(score, _latest_end(member)) for member, score in _uses(workspace_id, 0).items()}
    if ends:
        redis_client().zadd(_key(workspace_id), {**ends}, xx=True, lt=True)
    return max(ends.values(), default=0.0)


def is_in_use(workspace_id: str, within: float) -> bool:
    """Return whether the workspace was used within that many seconds. Return True if Redis does not answer: a use is
    never interrupted.
    """
    try:
        return time.time() - last_used(workspace_id) < within
    except redis.RedisError as exc:
        logger.warning("the last use of %s cannot be read or written: %s", workspace_id, exc)
        return True


def _write_use(workspace_id: str, member: str, score: float, *, ended: str = "") -> bool:
    """Write a use to Redis. Return whether Redis has it."""
    try:
        with redis_client().pipeline() as pipe:
            pipe.zadd(_key(workspace_id), {member: score}, gt=True)
            if ended:
                pipe.zrem(_key(workspace_id), ended)
            pipe.expire(_key(workspace_id), EXPIRY_SECONDS)
            pipe.execute()
    except redis.RedisError as exc:
        logger.warning("the last use of %s cannot be read or written: %s", workspace_id, exc)
        return False
    return True


def record_request(workspace_id: str) -> None:
    """Record a request through the edge, at most once in REQUEST_INTERVAL_SECONDS for one workspace and process."""
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
        """Record a chunk, in a thread: this waits for Redis."""
        if self._is_due():
            record_use(self._workspace_id)

    async def arecord_chunk(self) -> None:
        """Record a chunk, in an event loop."""
        if self._is_due():
            await in_pool_thread(record_use, self._workspace_id)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._recorded_at < TRANSFER_INTERVAL_SECONDS:
            return False
        self._recorded_at = now
        return True
