"""Wakes the worker `media` for a file whose bytes have arrived."""

from __future__ import annotations

import logging

import redis
from celery import current_app
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

QUEUE = "media"
TASK = "cdn.tasks.process_file"


def worker_notify(file_id: str) -> None:
    """By a task. Where that fails (Redis is down), the worker's next look at the rows finds the file."""
    try:
        current_app.send_task(TASK, args=[file_id], queue=QUEUE, expires=3600)
    except (OperationalError, redis.RedisError, OSError) as exc:
        logger.warning("could not notify the worker of %s: %s", file_id, exc)
