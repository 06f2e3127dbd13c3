"""One thread that claims and writes, and a pool of threads that do the work.

The thread looks for what is due each second, when it is notified and when work ends. So work goes on while Redis is
away, and what ends at about the same time is one commit. If the database or Redis fails, the thread returns its
connections, pauses for as long as between two looks, and goes on; what has ended is written then.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

import redis
from django.db import connections

from common.database_errors import is_database_unavailable

logger = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")


class Dispatcher(ABC, Generic[Outcome]):
    """A dispatcher that runs from `start` to `stop`. A subclass says what a pass does. `name`: of its threads, and in
    the log.
    """

    LOOK_SECONDS = 1.0
    # While work is in flight: what ends within it is written together.
    GATHER_SECONDS = 0.01
    # Longer than an attempt and the transaction after it; shorter than the supervisor waits for the process.
    STOP_SECONDS = 20.0

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._looked_at = 0.0
        self._notified = threading.Event()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-dispatcher", daemon=True)

    @abstractmethod
    def run_pass(self) -> int:
        """Write what has ended, then begin what is due unless `is_stopping`. Return how many it began, if another
        pass is to follow at once.

        Raise what the database raises; nothing is lost then.
        """

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Return whether something is in flight, or is to be written."""

    def give_back(self) -> None:
        """Give back at the end what was claimed and not begun; if this raises, the leases end by themselves."""

    def seconds_to_look(self) -> float:
        """Return the seconds until the next pass, if nothing ends before."""
        return self.LOOK_SECONDS

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin with what is due."""
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """Look for what is due, without waiting for it."""
        self._notified.set()
        self._woken.set()

    def stop_claiming(self) -> None:
        """Begin nothing more. Return at once; may be called by a signal handler."""
        self._stopping.set()
        self._woken.set()

    def stop(self, seconds: float | None = None) -> None:
        """Wait until what is in flight has ended and is written, for `seconds` (STOP_SECONDS) at most.

        Work that is not written by then is due again when its lease ends.
        """
        self.stop_claiming()
        self._thread.join((self.STOP_SECONDS if seconds is None else seconds) + self.LOOK_SECONDS)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def is_time_to_look(self) -> bool:
        """Return whether it was notified, or has not looked for LOOK_SECONDS; for passes that are more frequent than
        looks.
        """
        now = time.monotonic()
        if not self._notified.is_set() and now - self._looked_at < self.LOOK_SECONDS:
            return False
        self._notified.clear()
        self._looked_at = now
        return True

    def begin(self, work: Callable[[], Outcome]) -> None:
        """Do it in a thread of the pool. It never raises: what goes wrong is its outcome."""
        self._pool.submit(self._do_and_report, work)

    def ended_work(self) -> list[Outcome]:
        """Return the outcomes that have come since the last call."""
        found = []
        while not self._ended.empty():
            found.append(self._ended.get())
        return found

    def _do_and_report(self, work: Callable[[], Outcome]) -> None:
        self._ended.put(work())
        self._woken.set()

    def _run(self) -> None:
        until = None
        while until is None or (self.is_busy and time.monotonic() < until):
            if self._woken.wait(self.seconds_to_look()) and self.is_busy:
                time.sleep(self.GATHER_SECONDS)
            self._woken.clear()
            if self.is_stopping and until is None:
                until = time.monotonic() + self.STOP_SECONDS
            try:
                if self.run_pass():
                    self._woken.set()
            except Exception as exc:  # the thread must survive whatever may be gone at the next look
                self._after_failure(exc)
        with suppress(Exception):
            self.give_back()
        connections.close_all()

    def _after_failure(self, exc: Exception) -> None:
        """Close a connection that failed, and pause: without the pause a lasting failure would take a core."""
        failure_log(self.name, exc)
        self._notified.set()
        with suppress(Exception):
            connections.close_all()
        time.sleep(self.LOOK_SECONDS)


def failure_log(what: str, exc: Exception) -> None:
    """Log a line for a failure that may be over at the next attempt; any other one is a fault, with its traceback."""
    if is_database_unavailable(exc):
        logger.warning("%s: waits for the database: %s", what, exc)
    elif isinstance(exc, redis.RedisError):
        logger.warning("%s: waits for Redis: %s", what, exc)
    else:
        logger.error(what, exc_info=exc)
