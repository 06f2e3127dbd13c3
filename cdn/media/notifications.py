"""Tasks for the worker `media`: a file whose bytes have arrived, bytes and links that are to be removed."""

from __future__ import annotations

import logging

import redis
from celery import current_app
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

QUEUE = "media"
PROCESS_TASK = "cdn.tasks.process_next"
REMOVE_TASK = "cdn.tasks.remove_stored"
WITHDRAW_TASK = "cdn.tasks.withdraw_links"
EXPIRES_SECONDS = 3600
# It is sent again after as many, while no process has begun with it.
WITHDRAWAL_EXPIRES_SECONDS = 10


def worker_notify(file_id: str) -> None:
    """One task for each file; which file it processes is decided when it runs, so that accounts take turns."""
    _send(PROCESS_TASK, [], f"the worker of {file_id}")


def removal_request(file_ids: list[str]) -> None:
    """Have what is stored of these files removed."""
    _send(REMOVE_TASK, [file_ids], f"the worker of the bytes of {len(file_ids)} files")


def withdrawal_request(account_id: str) -> None:
    """Have the other links of an inactive account's files removed."""
    _send(WITHDRAW_TASK, [account_id], f"the worker of the links of {account_id}", WITHDRAWAL_EXPIRES_SECONDS)


def _send(task: str, args: list[object], what: str, expires: int = EXPIRES_SECONDS) -> None:
    """Where that fails (Redis is down), the next look at the rows, or at the store, finds the same."""
    try:
        current_app.send_task(task, args=args, queue=QUEUE, expires=expires)
    except (OperationalError, redis.RedisError, OSError) as exc:
        logger.warning("could not notify %s: %s", what, exc)
