"""Wake-ups: a task that says that a row has changed. It may be lost, repeated or late; the row is what counts.

If Redis is away a wake-up is lost, and the process finds the row at its next look.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import redis
from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from common.confinement import is_closed_queue
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

MOST_WAITING = 20
# A process that looks each second gains nothing from an older one.
EXPIRES_SECONDS = 5
# One that names a row is of use for as long as the row waits.
ROW_EXPIRES_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class ProcessWakeup:
    """The wake-up of a process that looks by itself each second: it says that there is something, not what."""

    queue: str
    task: str

    def send(self) -> None:
        """Send a wake-up. While the process is away tasks stay in Redis, also expired ones, so there are never more
        than some.
        """
        if is_closed_queue(self.queue):
            return
        try:
            if int(redis_client().llen(redis_key(self.queue))) >= MOST_WAITING:
                return
        except (redis.RedisError, OSError) as exc:
            logger.warning("could not notify %s: %s", self.queue, exc)
            return
        task_send(self.task, self.queue, expires=EXPIRES_SECONDS)

    def send_on_commit(self) -> None:
        """Send a wake-up once the caller's transaction has committed."""
        transaction.on_commit(self.send, robust=True)


def task_send(task: str, queue: str, args: Sequence[object] = (), *, expires: int = ROW_EXPIRES_SECONDS) -> None:
    """Send a wake-up, with what it is about. Never raises for a Redis that is away."""
    if is_closed_queue(queue):
        return
    try:
        current_app.send_task(task, args=list(args), queue=queue, expires=expires)
    except (OperationalError, redis.RedisError, OSError) as exc:
        logger.warning("could not notify %s of %.100s: %s", queue, ", ".join(map(str, args)) or task, exc)
