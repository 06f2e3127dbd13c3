"""Disk usage of the guests, and whether they answer, queried at long intervals by a few threads of their own.

The query is the ping: no other is sent to a guest. A guest may be silent, slow or hostile. It occupies a thread up to
the deadline; one that did not answer the last time, one of the threads for those: guests that answer are not delayed by
those that do not, and the sampler never waits for any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from vmbackend.driver import Driver
from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.samples import GuestDisk

logger = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
FIRST_SECONDS = 1.0  # for a machine that was never queried: its agent starts after the machine is ready
SILENT_SECONDS = 30.0  # the interval of a guest that does not answer doubles up to this
MAX_SECONDS = 600.0  # after a fault of ours
DEADLINE_SECONDS = 1.0
UNRESPONSIVE_SECONDS = 60.0  # a guest that has not answered for so long is reported
THREADS = 4
SILENT_THREADS = 2
POLL_SECONDS = 1.0


class DiskMeter:
    """Disk usage of guests. The sampler sets `machines`; any thread may read `latest`.

    `reports`: entries to store, each a machine's id with the time since when its guest has not answered, or None if it
    answers. The sampler takes from the left; a report may come more than once.
    """

    def __init__(self, driver: Driver) -> None:
        self.machines: Collection[str] = ()
        self.latest: dict[str, GuestDisk] = {}
        self.reports: deque[tuple[str, float | None]] = deque()
        # Seconds since the epoch; None: it answers. Without an entry: it was not queried yet.
        self._silent_since: dict[str, float | None] = {}
        self._driver = driver
        self._due: dict[str, float] = {}
        self._interval: dict[str, float] = {}
        self._in_progress: set[str] = set()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="guest-disks")
        self._silent_pool = ThreadPoolExecutor(SILENT_THREADS, thread_name_prefix="silent-guests")
        self._thread = threading.Thread(target=self._work, name="guest-disks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the threads; a query in progress ends at its deadline."""
        self._ended.set()
        self._thread.join(POLL_SECONDS + 1)
        for pool in (self._pool, self._silent_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def query_due(self, now: float) -> None:
        """Query the guests that are due, without waiting for their answers; `now` on the monotonic clock."""
        machines = set(self.machines)
        for gone in self._due.keys() - machines - self._in_progress:
            for by_machine in (self._due, self._interval, self.latest, self._silent_since):
                by_machine.pop(gone, None)
        for machine_id in machines - self._in_progress:
            if self._due.get(machine_id, 0.0) <= now:
                self._in_progress.add(machine_id)
                pool = self._silent_pool if self._silent_since.get(machine_id) else self._pool
                pool.submit(self._query, machine_id)

    def _query(self, machine_id: str) -> None:
        try:
            self.latest[machine_id] = self._driver.guest_disk(machine_id, DEADLINE_SECONDS)
            self._interval[machine_id] = EVERY_SECONDS
            self._record_answer(machine_id)
        except GuestUnreachable:
            self.latest.pop(machine_id, None)
            self._record_silence(machine_id)
        except BackendError:  # it is paused or has just ended: not the guest's fault
            self._interval[machine_id] = EVERY_SECONDS
        except Exception:
            logger.exception("the disk usage of %s could not be queried", machine_id)
            self._interval[machine_id] = MAX_SECONDS
        finally:
            self._due[machine_id] = time.monotonic() + self._interval.get(machine_id, MAX_SECONDS)
            self._in_progress.discard(machine_id)

    def _record_answer(self, machine_id: str) -> None:
        # The first answer is reported too: the row may be of a former process.
        if self._silent_since.get(machine_id, 0.0) is not None:
            self.reports.append((machine_id, None))
        self._silent_since[machine_id] = None

    def _record_silence(self, machine_id: str) -> None:
        now, since = time.time(), self._silent_since.get(machine_id)
        if since is None:
            since = self._silent_since[machine_id] = now
            self._interval[machine_id] = FIRST_SECONDS
        self._interval[machine_id] = min(SILENT_SECONDS, 2 * self._interval[machine_id])
        if now - since >= UNRESPONSIVE_SECONDS:
            self.reports.append((machine_id, since))

    def _work(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self.query_due(time.monotonic())
