"""Host runtime: the objects of the vmhost process of a host (driver, images, claims) and its threads."""

from __future__ import annotations

import logging
import os
import queue as queues
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import close_old_connections, connections
from django.utils import timezone

from vmbackend import services as hosts
from vmbackend.backend import transfer_public_key
from vmbackend.driver import Driver, Event
from vmbackend.errors import BackendError, HostNameHeld, HostRemoved
from vmbackend.host_claim import host_claim
from vmbackend.models import queue_of_host
from workspaces.host.arrivals import ArrivalKeeper, ReceivingHost
from workspaces.host.console_publisher import ConsolePublisher
from workspaces.host.disk_guard import DiskGuard
from workspaces.host.flattening import Flattening
from workspaces.host.guest_renewals import GuestRenewals
from workspaces.host.operation_shares import OperationShares
from workspaces.host.peers import PeerKeeper
from workspaces.host.pool.keeper import PoolKeeper
from workspaces.host.released_calls import released_calls
from workspaces.host.transfers import host_transfers
from workspaces.operations import queue

if TYPE_CHECKING:
    from vmbackend.images.store import ImageStore

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0  # a sixth of a lease
PROBE_ID = "no-machine"  # an id that no machine has


class HostRuntime:
    """Runtime of one vmhost process. `start` returns when the host is ready to carry out operations."""

    def __init__(self, *, name: str, subnet: str, driver: Driver, images: ImageStore) -> None:
        """Raise HostNameHeld, HostRemoved."""
        self.name = name
        self.claim = host_claim(settings.STATE)
        self.host_id = host_id = hosts.find_host_id(name=name, claim=self.claim)
        self.subnet = subnet
        self.driver = driver
        self.images = images
        self.orphan_since: dict[str, float] = {}
        self.snapshot_since: dict[str, float] = {}  # of entries of the store that have no row
        self.compared_snapshots: set[str] = set()
        self._removals: list[float] = []
        self._claims: set[str] = set()
        self._events: queues.SimpleQueue[Event | None] = queues.SimpleQueue()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._console_publisher = ConsolePublisher(host_id, driver.boot_log)
        self.guest_renewals = GuestRenewals(host_id)
        env = settings.ENV
        self.address: str = env.host_address
        self._transfer_key = transfer_public_key()
        self._peers = PeerKeeper(host_id, driver, address=self.address, subnet=subnet)
        self.transfers = host_transfers()
        self.arrivals = ArrivalKeeper(ReceivingHost(host_id, driver, images, self.transfers))
        self.shares = OperationShares(env.vmhost_threads)
        self.disk_guard = DiskGuard(
            host_id, driver, reserve_mb=env.disk_reserve_mb, state=settings.STATE, machines=env.machines_dir
        )

        self.flattening = Flattening(host_id, driver, has_room=lambda: self.disk_guard.has_reserve)
        self.pool = PoolKeeper(
            host_id, released_calls(driver), released_calls(images), is_short=lambda: self.disk_guard.is_short
        )

    @property
    def queue_name(self) -> str:
        return queue_of_host(self.host_id)

    @property
    def claims(self) -> frozenset[str]:
        """Return the claims that this process owns now."""
        return frozenset(self._claims)

    @contextmanager
    def hold_claim(self, claim: str) -> Iterator[None]:
        """Own a claim within the context: the heartbeat thread keeps it alive."""
        self._claims.add(claim)
        try:
            yield
        finally:
            self._claims.discard(claim)

    def start(self, on_event: Callable[[Event, Driver], None]) -> None:
        """Open the driver, register the host, start the threads. Raise BackendUnavailable, HostNameHeld."""
        self.driver.open(self._events.put)
        self.send_heartbeat()
        self._spawn("events", lambda: self._handle_events(on_event))
        self._spawn("heartbeat", self._send_heartbeats)
        self._console_publisher.start()
        self._peers.start()
        self.transfers.start()

    def stop(self) -> None:
        """End the threads and disconnect; machines continue to run."""
        self._ended.set()
        self.transfers.stop()
        self.disk_guard.stop()
        self.guest_renewals.stop()
        self.flattening.stop()
        self.pool.stop()
        self.arrivals.stop()
        self._peers.stop()
        self._events.put(None)
        self._console_publisher.stop()
        for thread in self._threads:
            thread.join(timeout=10)
        self.driver.close()

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"vmhost-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _handle_events(self, on_event: Callable[[Event, Driver], None]) -> None:
        while (event := self._events.get()) is not None:
            try:
                close_old_connections()
                on_event(event, self.driver)
            except Exception:  # reconcile settles the end that the event reported
                logger.exception("the event %s could not be handled", event)
        connections.close_all()

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                close_old_connections()
                self.send_heartbeat()
            except (
                HostNameHeld,
                HostRemoved,
            ) as exc:  # as after this machine stood still: another one has its operations by now
                logger.critical("vmhost ends: %s", exc.message)
                os.kill(os.getpid(), signal.SIGTERM)
                break
            except Exception as exc:  # the thread must survive whatever may be gone at the next heartbeat
                logger.warning("the heartbeat failed: %s", exc)
        connections.close_all()

    def send_heartbeat(self) -> None:
        """Renew the claims and the host's sign of life, and notify again of operations that were not picked up.

        Raise HostNameHeld.
        """
        if claims := self.claims:
            queue.renew_leases(claims)
        try:
            self.driver.state(PROBE_ID)  # raises if the hypervisor is lost; the capacity would not
            capacity = self.driver.capacity()
        except BackendError as exc:
            hosts.record_host_problem(host_id=self.host_id, name=self.name, claim=self.claim, problem=exc.message)
        else:
            hosts.record_host_seen(
                host_id=self.host_id,
                name=self.name,
                claim=self.claim,
                subnet=self.subnet,
                capacity=capacity,
                address=self.address,
                transfer_key=self._transfer_key,
            )
        self.arrivals.begin()  # of which the notification was lost
        for operation in queue.mark_unnotified(self.queue_name, timezone.now() - queue.NOTIFY_AGAIN_AFTER):
            queue.notify_host(operation)

    def allow_orphan_removal(self, per_hour: int) -> bool:
        """Return whether one more orphan may be removed within the hour, and count it if so."""
        now = time.monotonic()
        self._removals = [at for at in self._removals if now - at < 3600]
        if len(self._removals) >= per_hour:
            return False
        self._removals.append(now)
        return True
