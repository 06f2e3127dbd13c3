"""Periodic maintenance: firewall tables, routes and neighbour entries exist, learned addresses expire, resolvers run,
logs are limited.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from vmbackend.errors import BackendError
from vmbackend.libvirt.firewall import NAME_SECONDS, NetworkPort
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.record import MachineDir, Record

log = logging.getLogger(__name__)


class NetworkMaintainer:
    """A thread from `start` to `stop`. Without it (vmhost is down) learned addresses expire by their own timeout."""

    def __init__(
        self, network: Network, directories: Callable[[], Iterable[MachineDir]], limit_logs: Callable[[], None]
    ) -> None:
        self._network = network
        self._directories = directories
        self._limit_logs = limit_logs
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the first run is after NAME_SECONDS."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="network-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Idempotent."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def maintain_once(self, number: int) -> None:
        """Run once for all machines. A failure for one machine is retried in the next run."""
        with self._network.lock:
            # Read under the lock: the resolver of a machine that was just deleted must not be started again.
            found = [record for files in self._directories() if (record := files.read_record()) is not None]
            ports = [port_for(record) for record in found]
            self._restore_tables(ports)
            for record in found:
                if record.network.names:
                    self._expire_learned_addresses(record, number)
            try:
                self._network.sync_resolvers(ports)
            except (BackendError, OSError) as error:
                log.warning("resolvers: %s", error)

    def _restore_tables(self, ports: list[NetworkPort]) -> None:
        try:
            self._network.restore_missing_tables(ports)
            self._network.restore_neighbours(ports)
            self._network.restore_routes()
        except (BackendError, OSError) as error:
            log.error("the firewall cannot be repaired: %s", error)

    def _expire_learned_addresses(self, record: Record, number: int) -> None:
        try:
            self._network.expire_learned_addresses(record.ip, number)
        except BackendError as error:
            log.warning("machine %s: its learned addresses cannot be updated: %s", record.id, error)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(NAME_SECONDS):
            try:
                self._limit_logs()
                self.maintain_once(number)
            except OSError as error:
                log.warning("names: %s", error)
            number += 1


def port_for(record: Record) -> NetworkPort:
    """Return a machine's network port, from its record."""
    return NetworkPort(record.id, record.ip, record.network, record.generation)
