"""What the process `push` does: one thread that claims and writes, and many that send and touch no database.

The thread looks for sends each second, when it is notified of one, and when an attempt ends.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from django.db import connections

from common.database_errors import is_database_unavailable
from notifications.models import Device
from notifications.sends.attempts import Outcome, PushProvider, attempt_make
from notifications.sends.fanout import Fanout
from notifications.sends.running import RunningSends

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# While sends are in flight, whose requests wait for counts and whose leases are to be renewed.
WRITE_SECONDS = 0.25
# While attempts are in flight: what ends within it is counted together.
GATHER_SECONDS = 0.005
# Longer than an attempt and the transaction after it; shorter than the supervisor waits for the process.
STOP_SECONDS = 20.0


class Dispatcher:
    """From `start` to `stop`. `providers`: by the provider of a device."""

    def __init__(self, threads: int, providers: Mapping[str, PushProvider]) -> None:
        self._running = RunningSends(secrets.token_hex(16), threads, providers)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="push")
        self._ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._looked_at = 0.0
        self._notified = threading.Event()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="push-dispatcher", daemon=True)

    def start(self) -> None:
        """Begin with what is there."""
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """Look for sends, without waiting for it."""
        self._notified.set()
        self._woken.set()

    def stop_claiming(self) -> None:
        """Begin no further attempt. Returns at once; may be called by a signal handler."""
        self._stopping.set()
        self._woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Wait until the attempts in flight have ended and are written, for `seconds` at most.

        What was not begun goes on in the next process; what has no outcome by then counts as not answered.
        """
        self.stop_claiming()
        self._thread.join(seconds + LOOK_SECONDS)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run_pass(self) -> None:
        """Count what has ended, begin what is due, write what has changed. Raises what the database raises; nothing is
        lost then.
        """
        self._running.record(self._taken_outcomes())
        if not self._stopping.is_set():
            if self._notified.is_set() or time.monotonic() - self._looked_at >= LOOK_SECONDS:
                self._notified.clear()
                self._looked_at = time.monotonic()
                self._running.claim()
            self._running.begin(self._begin)
        self._running.write()

    def _run(self) -> None:
        until = None
        while until is None or (self._running.in_flight and time.monotonic() < until):
            if self._woken.wait(WRITE_SECONDS if self._running.in_flight else LOOK_SECONDS):
                time.sleep(GATHER_SECONDS)
            self._woken.clear()
            if self._stopping.is_set() and until is None:
                until = time.monotonic() + STOP_SECONDS
            try:
                self.run_pass()
            except Exception as exc:  # the thread must survive whatever may be gone at the next look
                self._after_failure(exc)
        with suppress(Exception):  # its lease ends
            self._running.give_back()
        connections.close_all()

    def _after_failure(self, exc: Exception) -> None:
        """A connection that failed is not used again; without the pause a lasting failure would take a core."""
        if is_database_unavailable(exc):
            logger.warning("notifications wait for the database: %s", exc)
        else:
            logger.error("notifications", exc_info=exc)
        self._notified.set()
        with suppress(Exception):
            connections.close_all()
        time.sleep(LOOK_SECONDS)

    def _taken_outcomes(self) -> Iterator[Outcome]:
        while not self._ended.empty():
            yield self._ended.get()

    def _begin(self, provider: PushProvider, fanout: Fanout, device: Device, pause_name: str) -> None:
        self._pool.submit(self._attempt_and_report, provider, fanout, device, pause_name)

    def _attempt_and_report(self, provider: PushProvider, fanout: Fanout, device: Device, pause_name: str) -> None:
        self._ended.put(attempt_make(provider, fanout, device, pause_name))
        self._woken.set()
