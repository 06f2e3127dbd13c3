"""Disk usage of the guests, queried from each guest at long intervals by a few threads of their own.

A guest may be silent, slow or hostile. It occupies one of the threads up to the deadline, and its interval is doubled
each time, so guests that answer are not starved by those that do not, and the sampler never waits for any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from vmbackend.driver import Driver
from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.samples import GuestDisk

logger = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
FIRST_SECONDS = 1.0  # of a machine that was never queried: its agent starts after it is ready
MAX_SECONDS = 600.0
DEADLINE_SECONDS = 1.0
THREADS = 4
POLL_SECONDS = 1.0


class DiskMeter:
    """`machines` is set by the sampler; `latest` may be read by any thread."""

    def __init__(self, driver: Driver) -> None:
        self.machines: Collection[str] = ()
        self.latest: dict[str, GuestDisk] = {}
        self._driver = driver
        self._due: dict[str, float] = {}
        self._interval: dict[str, float] = {}
        self._in_progress: set[str] = set()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="guest-disks")
        self._thread = threading.Thread(target=self._work, name="guest-disks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the threads; a query in progress ends at its deadline."""
        self._ended.set()
        self._thread.join(POLL_SECONDS + 1)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def query_due(self, now: float) -> None:
        """Query the guests that are due; `now` on the monotonic clock. Does not wait for their answers."""
        machines = set(self.machines)
        for gone in self._due.keys() - machines - self._in_progress:
            for by_machine in (self._due, self._interval, self.latest):
                by_machine.pop(gone, None)
        for machine_id in machines - self._in_progress:
            if self._due.get(machine_id, 0.0) <= now:
                self._in_progress.add(machine_id)
                self._pool.submit(self._query, machine_id)

    def _query(self, machine_id: str) -> None:
        try:
            self.latest[machine_id] = self._driver.guest_disk(machine_id, DEADLINE_SECONDS)
            self._interval[machine_id] = EVERY_SECONDS
        except GuestUnreachable:
            self.latest.pop(machine_id, None)
            self._interval[machine_id] = min(MAX_SECONDS, 2 * self._interval.get(machine_id, FIRST_SECONDS))
        except BackendError:  # it is paused or has just ended: not the guest's fault
            self._interval[machine_id] = EVERY_SECONDS
        except Exception:
            logger.exception("disk of %s", machine_id)
            self._interval[machine_id] = MAX_SECONDS
        finally:
            self._due[machine_id] = time.monotonic() + self._interval.get(machine_id, MAX_SECONDS)
            self._in_progress.discard(machine_id)

    def _work(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self.query_due(time.monotonic())
