"""How full the guests' disks are: asked of each guest seldom, by a few threads of their own.

A guest may be silent, slow or hostile. It keeps one of the threads busy for its deadline and is then asked less and
less often, so guests that answer are not starved by those that do not, and the sampler never waits for any.
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
FIRST_SECONDS = 1.0  # of a machine that was never asked: its agent comes up after it is ready
SELDOM_SECONDS = 600.0
DEADLINE_SECONDS = 1.0
THREADS = 4
LOOK_SECONDS = 1.0


class DiskMeter:
    """`wanted` is the sampler's to set; `known` may be read by any thread."""

    def __init__(self, driver: Driver) -> None:
        self.wanted: Collection[str] = ()
        self.known: dict[str, GuestDisk] = {}
        self._driver = driver
        self._due: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._asking: set[str] = set()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="guest-disks")
        self._thread = threading.Thread(target=self._work, name="guest-disks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is being asked ends by its deadline."""
        self._ended.set()
        self._thread.join(LOOK_SECONDS + 1)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self, now: float) -> None:
        """Ask whom it is time to ask; `now` on the monotonic clock. Does not wait for any answer."""
        wanted = set(self.wanted)
        for gone in self._due.keys() - wanted - self._asking:
            for kept in (self._due, self._pause, self.known):
                kept.pop(gone, None)
        for machine_id in wanted - self._asking:
            if self._due.get(machine_id, 0.0) <= now:
                self._asking.add(machine_id)
                self._pool.submit(self._ask, machine_id)

    def _ask(self, machine_id: str) -> None:
        try:
            self.known[machine_id] = self._driver.guest_disk(machine_id, DEADLINE_SECONDS)
            self._pause[machine_id] = EVERY_SECONDS
        except GuestUnreachable:
            self.known.pop(machine_id, None)
            self._pause[machine_id] = min(SELDOM_SECONDS, 2 * self._pause.get(machine_id, FIRST_SECONDS))
        except BackendError:  # it stands still or has just ended: no fault of the guest
            self._pause[machine_id] = EVERY_SECONDS
        except Exception:
            logger.exception("disk of %s", machine_id)
            self._pause[machine_id] = SELDOM_SECONDS
        finally:
            self._due[machine_id] = time.monotonic() + self._pause.get(machine_id, SELDOM_SECONDS)
            self._asking.discard(machine_id)

    def _work(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look(time.monotonic())
