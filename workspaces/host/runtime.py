"""What the one vmhost process of a machine holds: the driver, the images, its claims, and the keeper's thread."""

from __future__ import annotations

import logging
import queue as queues
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import close_old_connections, connections
from django.utils import timezone

from vmbackend import services as hosts
from vmbackend.driver import Driver, Event
from vmbackend.errors import BackendError
from workspaces.host.console_publisher import ConsolePublisher
from workspaces.operations import queue

if TYPE_CHECKING:
    from vmbackend.images.store import ImageStore

logger = logging.getLogger(__name__)

BEAT_SECONDS = 3.0
NOBODY = "nobody"  # an id that no machine has


class HostRuntime:
    """Made once per vmhost process. `start` returns when the host is ready to take operations."""

    def __init__(self, *, name: str, subnet: str, driver: Driver, images: ImageStore) -> None:
        self.name = name
        self.subnet = subnet
        self.driver = driver
        self.images = images
        self.leftover_since: dict[str, float] = {}
        self.removals: list[float] = []
        self._claims: set[str] = set()
        self._events: queues.SimpleQueue[Event | None] = queues.SimpleQueue()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._boot_logs = ConsolePublisher(name, driver.boot_log)

    @property
    def queue_name(self) -> str:
        return f"host.{self.name}"

    @property
    def claims(self) -> frozenset[str]:
        """Claims that this process holds now."""
        return frozenset(self._claims)

    @contextmanager
    def hold_claim(self, claim: str) -> Iterator[None]:
        """The keeper beats for this claim meanwhile."""
        self._claims.add(claim)
        try:
            yield
        finally:
            self._claims.discard(claim)

    def start(self, on_event: Callable[[Event, Driver], None]) -> None:
        """Open the driver, register the host, begin to beat. Raises BackendUnavailable."""
        self.driver.open(self._events.put)
        self.beat()
        self._spawn("events", lambda: self._deliver(on_event))
        self._spawn("keeper", self._keep)
        self._boot_logs.start()

    def stop(self) -> None:
        """Stop beating and disconnect; machines go on."""
        self._ended.set()
        self._events.put(None)
        self._boot_logs.stop()
        for thread in self._threads:
            thread.join(timeout=10)
        self.driver.close()

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"vmhost-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _deliver(self, on_event: Callable[[Event, Driver], None]) -> None:
        while (event := self._events.get()) is not None:
            try:
                close_old_connections()
                on_event(event, self.driver)
            except Exception:  # an event that cannot be handled is found again by the reconcile loop
                logger.exception("event %s", event)
        connections.close_all()

    def _keep(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                close_old_connections()
                self.beat()
            except Exception as exc:  # the heart must not stop for anything that the next beat may find mended
                logger.warning("keeper: %s", exc)
        connections.close_all()

    def beat(self) -> None:
        """Heartbeat of the claims and of the host; bells that nobody heard are rung again."""
        if claims := self.claims:
            queue.record_heartbeat(claims)
        try:
            self.driver.state(NOBODY)  # a lost hypervisor says so here; the capacity would not
            hosts.record_host_seen(name=self.name, subnet=self.subnet, capacity=self.driver.capacity())
        except BackendError as exc:
            hosts.record_host_problem(name=self.name, problem=exc.message)
        for operation in queue.unnotified(self.queue_name, timezone.now() - queue.NOTIFY_AGAIN_AFTER):
            queue.notify_host(operation)

    def count_removal(self, per_hour: int) -> bool:
        """Whether the cap on removals of leftovers has room; counts one if so."""
        now = time.monotonic()
        self.removals = [at for at in self.removals if now - at < 3600]
        if len(self.removals) >= per_hour:
            return False
        self.removals.append(now)
        return True
