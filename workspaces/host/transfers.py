"""Copies of stored snapshots between hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings

from vmbackend.backend import transfer_key, transfer_port, transfer_server
from vmbackend.errors import BackendUnavailable
from vmbackend.models import Host

if TYPE_CHECKING:
    from vmbackend.transfer.server import TransferServer

MB = 1_000_000


class Transfers(Protocol):
    """The way of one host's vmhost to those of others."""

    def start(self) -> None:
        """Let other hosts in."""

    def stop(self) -> None:
        """End every copy, and let nobody in any more."""

    def offer(self, offer_id: str, folder: Path, to: Host) -> None:
        """Let one host copy a folder's files, until `withdraw`. Idempotent. Raise BackendUnavailable."""

    def withdraw(self, offer_id: str) -> None:
        """End an offer, and what copies it now. Idempotent."""

    def fetch(
        self,
        offer_id: str,
        into: Path,
        source: Host,
        *,
        max_bytes: int,
        max_file_bytes: int,
        on_progress: Callable[[int], None],
        give_up: Callable[[], bool],
    ) -> None:
        """Copy what another host offers; files that are there already are gone on with.

        `max_bytes`: of all files on the disk; `max_file_bytes`: of one with its holes. `on_progress` is told the bytes
        so far, `give_up` is asked often. Raise BackendUnavailable (it may pass), TransferRefused, DeadlineExceeded
        (also if given up).
        """


def host_transfers() -> Transfers:
    """Return the way of this host, not started."""
    server, key = transfer_server(), transfer_key()
    return HostTransfers(server, key) if server is not None and key is not None else NoTransfers()


class HostTransfers(Transfers):
    """By rsync within SSH (`vmbackend.transfer`), as fast as PLATFORM_MOVE_MB_PER_SECOND says."""

    def __init__(self, server: TransferServer, key: Path) -> None:
        self._server = server
        self._key = key
        self._rate = int(settings.ENV.move_mb_per_second) * MB

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def offer(self, offer_id: str, folder: Path, to: Host) -> None:
        self._server.offer(offer_id, folder, to.transfer_key, self._rate)

    def withdraw(self, offer_id: str) -> None:
        self._server.withdraw(offer_id)

    def fetch(self, offer_id: str, into: Path, source: Host, **how: Any) -> None:
        from vmbackend.transfer.client import TransferSource, fetch_folder

        place = TransferSource(source.address, transfer_port(), source.transfer_key)
        deadline = time.monotonic() + settings.ENV.move_seconds
        fetch_folder(place, self._key, offer_id, into, deadline=deadline, bytes_per_second=self._rate, **how)


class NoTransfers(Transfers):
    """The way of a host that no other can reach: nothing moves."""

    _REASON = "This host and others cannot reach each other: open the instance with `make host-token`."

    def start(self) -> None:
        """Do nothing: nobody comes."""

    def stop(self) -> None:
        """Do nothing: nobody came."""

    def offer(self, offer_id: str, folder: Path, to: Host) -> None:
        raise BackendUnavailable(self._REASON)

    def withdraw(self, offer_id: str) -> None:
        """Do nothing: there are no offers."""

    def fetch(self, offer_id: str, into: Path, source: Host, **how: Any) -> None:
        raise BackendUnavailable(self._REASON)
