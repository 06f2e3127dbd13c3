"""The other hosts of the platform, as this host's driver is told of them: equal to the rows within two seconds.

A host that is silent stays a peer: its machines run on, and what is written to them waits for them. It is one until
its row is deleted or has no address any more.
"""

from __future__ import annotations

import logging
import threading
from ipaddress import IPv4Address, IPv4Network

from django.db import DatabaseError, InterfaceError, close_old_connections, connections

from common.connections import release_connection
from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from vmbackend.models import Host
from vmbackend.peers import Peer, refusal

logger = logging.getLogger(__name__)

ROUND_SECONDS = 1.0


class PeerKeeper:
    """A thread of vmhost from `start` to `stop`. `run_once` is one round; what fails in it is tried again in the next.

    `address`: of this host; without one it is alone and has no peers, whatever the rows say.
    """

    def __init__(self, host_id: str, driver: Driver, *, address: str, subnet: str) -> None:
        self._host_id, self._driver = host_id, driver
        self._address, self._subnet = address, IPv4Network(subnet)
        self._applied: list[Peer] | None = None  # None: what the process before applied is not known
        self._rows: list[tuple[str, str, str]] = []  # name, address and subnet, as read last
        self._accepted: list[Peer] = []  # of these rows
        self._refused: set[str] = set()
        self._problem = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="peers", daemon=True)

    def start(self) -> None:
        """Begin with a round at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Peers stay as they are."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def run_once(self) -> None:
        """Apply the rows, if they differ from what was applied. Raise BackendError, DatabaseError, InterfaceError."""
        peers = self._read_peers() if self._address else []
        if peers != self._applied:
            self._driver.apply_peers(peers)
            self._applied = peers
            logger.info("peers: %s", ", ".join(str(peer.address) for peer in peers) or "none")

    def _read_peers(self) -> list[Peer]:
        """Return the peers of the rows, which are compared with each other only if one has changed."""
        others = Host.objects.exclude(pk=self._host_id).exclude(address__in=["", self._address])
        rows = list(others.order_by("created_at", "name").values_list("name", "address", "subnet"))
        if rows != self._rows:
            self._rows, self._accepted = rows, self._accept(rows)
        return self._accepted

    def _accept(self, rows: list[tuple[str, str, str]]) -> list[Peer]:
        """Return the peers of the rows. A row that the driver would refuse keeps no other one away."""
        accepted, refused = list[Peer](), set[str]()
        for name, address, subnet in rows:
            try:
                peer = Peer(IPv4Address(address), IPv4Network(subnet))
                reason = refusal(peer, accepted, self._subnet)
            except ValueError as exc:
                reason = str(exc)
            if reason:
                refused.add(f"{name}: {reason}")
            else:
                accepted.append(peer)
        self._note_refused(refused)
        return accepted

    def _note_refused(self, refused: set[str]) -> None:
        for reason in sorted(refused - self._refused):
            logger.error("a host is no peer of this one: %s", reason)
        self._refused = refused

    def _work(self) -> None:
        while True:
            self._run_safely()
            if self._ended.wait(ROUND_SECONDS):
                break
        connections.close_all()

    def _run_safely(self) -> None:
        try:
            close_old_connections()
            self.run_once()
            release_connection()
            problem = ""
        except (DatabaseError, InterfaceError, BackendError) as exc:
            problem = str(exc)
        except Exception:  # the next round may succeed
            logger.exception("peers were not looked at")
            return
        if problem not in ("", self._problem):
            logger.warning("peers stay as they are: %s", problem)
        self._problem = problem
