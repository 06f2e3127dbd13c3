"""The wake-up of the process that sends. It may be lost, repeated or late: that process looks each second."""

from __future__ import annotations

import logging

import redis
from celery import current_app
from kombu.exceptions import OperationalError

from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

QUEUE = "push"
SEND_TASK = "notifications.tasks.sends_begin"
EXPIRES_SECONDS = 5
MOST_WAITING = 20


def notify_push() -> None:
    """While `push` is away tasks stay in Redis, also those that have expired, so there are never more than some."""
    try:
        if int(redis_client().llen(redis_key(QUEUE))) >= MOST_WAITING:
            return
        current_app.send_task(SEND_TASK, queue=QUEUE, expires=EXPIRES_SECONDS)
    except (OperationalError, redis.RedisError, OSError) as exc:
        logger.warning("could not notify the process that sends notifications: %s", exc)
