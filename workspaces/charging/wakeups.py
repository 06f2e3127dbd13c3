"""Notification of new metering records: one task to the worker, which charges them at once.

A thread of its own sends it, so that neither a slow Redis nor one that hangs delays the writer. One notification is
enough for many commits: while one waits in the queue no other is sent, as a pass that begins later also charges what
was committed before. A lost notification costs time only: beat runs a pass every half tick.
"""

from __future__ import annotations

import logging
import threading

import redis
from celery import current_app
from kombu.exceptions import OperationalError

from common.confinement import is_closed_queue
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

TASK = "workspaces.tasks.charge_metered"
# A notification that waits longer is not sent any more; one that was lost keeps others back for as long.
EXPIRES_SECONDS = 5
# After one commit others follow, for the other machines of the tick.
WAIT_SECONDS = 0.2
STOP_SECONDS = 1.0


def _waiting_key() -> str:
    return redis_key("charge-notified")


class ChargeNotifier:
    """Notifier: `notify` returns at once; a daemon thread sends."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="charge-notifier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify(self) -> None:
        """Note that something was committed, and return at once."""
        self._wanted.set()

    def stop(self) -> None:
        """Send a notification that is still wanted, within a second, and end the thread. Harmless if the thread never
        started.
        """
        self._ended.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _work(self) -> None:
        while not self._ended.is_set():
            self._wanted.wait()
            self._ended.wait(WAIT_SECONDS)
            # Cleared before sending: the next round notifies of a commit that comes meanwhile.
            self._wanted.clear()
            try:
                charge_notify()
            except Exception:
                logger.exception("the worker was not notified of metered usage")


def charge_notify() -> None:
    """Send the task unless one waits already. A failure is logged: nothing depends on it."""
    if is_closed_queue("default"):
        return
    try:
        if redis_client().set(_waiting_key(), "1", nx=True, ex=EXPIRES_SECONDS):
            current_app.send_task(TASK, expires=EXPIRES_SECONDS)
    except (OperationalError, redis.RedisError, OSError) as exc:
        logger.warning("could not notify the worker of metered usage: %s", exc)


def charge_begun() -> None:
    """Note that a pass begins, before it reads: commits from now on need another notification."""
    try:
        redis_client().delete(_waiting_key())
    except redis.RedisError as exc:
        logger.warning("a pass of charging begins without Redis: %s", exc)
