"""Looks after the network: the firewall is there, learned addresses are forgotten in time, resolvers are up."""

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
    """A thread from `start` to `stop`. Without it (vmhost is away) learned addresses end by their own time."""

    def __init__(self, network: Network, directories: Callable[[], Iterable[MachineDir]]) -> None:
        self._network = network
        self._directories = directories
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; the first turn comes after NAME_SECONDS."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="names", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; harmless where it does not run."""
        self._ended.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def maintain_once(self, number: int) -> None:
        """Once for all machines. What fails for one is tried in the next turn."""
        with self._network.lock:
            # Read under the lock: a machine that was deleted meanwhile must not get its resolver back.
            found = [record for files in self._directories() if (record := files.read_record()) is not None]
            ports = [port_for(record) for record in found]
            self._restore_tables(ports)
            for record in found:
                if record.network.names:
                    self._quietly(record, number)
            try:
                self._network.sync_resolvers(ports)
            except (BackendError, OSError) as error:
                log.warning("resolvers: %s", error)

    def _restore_tables(self, ports: list[NetworkPort]) -> None:
        try:
            self._network.restore_missing_tables(ports)
        except (BackendError, OSError) as error:
            log.error("the firewall: %s", error)

    def _quietly(self, record: Record, number: int) -> None:
        try:
            self._network.expire_learned_addresses(record.ip, number)
        except BackendError as error:
            log.warning("machine %s: learned addresses: %s", record.id, error)

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(NAME_SECONDS):
            try:
                self.maintain_once(number)
            except OSError as error:
                log.warning("names: %s", error)
            number += 1


def port_for(record: Record) -> NetworkPort:
    """A machine's place in the network, as its record has it."""
    return NetworkPort(record.id, record.ip, record.network, record.generation)
