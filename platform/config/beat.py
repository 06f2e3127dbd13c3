"""Celery beat's scheduler for a schedule that is complete at its start, of which one at a time sends."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.beat import Scheduler
from redis import RedisError
from redis.exceptions import LockError
from redis.lock import Lock

from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
RENEW_SECONDS = 2.0
WAITS = "another beat sends the periodic tasks; this one waits until it has ended"


class BeatLease:
    """The right to send the periodic tasks: of all beats of an instance one has it. One that was killed loses it within
    LEASE_SECONDS; if Redis is away none has it, and nothing could be sent.
    """

    def __init__(self) -> None:
        self._lock: Lock = redis_client().lock(redis_key("beat"), timeout=LEASE_SECONDS, thread_local=False)
        self._is_held = False
        self._renewed_at = 0.0
        self._is_reported = False

    def hold(self) -> bool:
        """Take or renew it, if that was not done a moment ago. Raise nothing."""
        now = time.monotonic()
        if self._is_held and now - self._renewed_at < RENEW_SECONDS / 2:
            return True
        try:
            self._is_held = self._renew() or bool(self._lock.acquire(blocking=False))
            self._renewed_at = now
        except (RedisError, OSError) as exc:
            self._is_held = False
            self._report_problem(f"the periodic tasks wait for Redis: {exc}")
        else:
            self._report_problem("" if self._is_held else WAITS)
        return self._is_held

    def give_up(self) -> None:
        """Let another beat have it at once."""
        try:
            if self._is_held:
                self._lock.release()
        except (RedisError, OSError):
            pass  # it ends by itself

    def _renew(self) -> bool:
        """Return False if it was not held, or is lost: Redis was flushed, this process stood still."""
        try:
            return self._is_held and bool(self._lock.reacquire())
        except LockError:
            return False

    def _report_problem(self, problem: str) -> None:
        """Report a problem once, and again after it was over."""
        if problem and not self._is_reported:
            logger.warning("%s", problem)
        self._is_reported = bool(problem)


class FixedScheduler(Scheduler):
    """As Celery's own, in memory: see `beat_scheduler` in celery_settings.py.

    Celery's compares all entries with those of the tick before, for schedules that change while it runs, and wakes up
    10 ms before each task, which it passes in a loop without a sleep. Both together were nine tenths of the processor's
    time that beat used.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lease = BeatLease()
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, if it is this beat's to send. Return the seconds until it is to be called again."""
        if not self._lease.hold():
            return RENEW_SECONDS
        return min(float(super().tick(*args, **kwargs)), RENEW_SECONDS)

    def close(self) -> None:
        """Called when beat ends."""
        self._lease.give_up()
        super().close()

    def adjust(self, n: Any, drift: float = 0.0) -> Any:
        """Return the seconds until the next task, without Celery's 10 ms less."""
        return super().adjust(n, drift)

    def schedules_equal(self, old_schedules: Any, new_schedules: Any) -> bool:
        """Return that they are equal; the first tick fills the heap in any case."""
        return True
