"""The claim of a file that is processed, renewed from a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, connection

from cdn.errors import ClaimLost
from cdn.services.processing import ClaimedFile, processing_heartbeat

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0


class HeldClaim:
    """A claim, and whether it is still held."""

    def __init__(self, claimed: ClaimedFile) -> None:
        self.file = claimed
        self._lost, self._ended = threading.Event(), threading.Event()

    def require_held(self) -> None:
        """Raises ClaimLost."""
        if self._lost.is_set():
            raise ClaimLost

    def renew_until_ended(self) -> None:
        """A heartbeat that fails is tried again, until the claim has expired; by another connection, as between two of
        them none is held.
        """
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                processing_heartbeat(self.file)
            except ClaimLost:
                self._lost.set()
                return
            except (DatabaseError, InterfaceError) as exc:
                logger.warning("no heartbeat for %s: %s", self.file.file_id, exc)
            finally:
                connection.close()

    def end(self) -> None:
        self._ended.set()


@contextmanager
def claim_held(claimed: ClaimedFile) -> Iterator[HeldClaim]:
    """Renews the claim within the block."""
    held = HeldClaim(claimed)
    thread = threading.Thread(target=held.renew_until_ended, name="cdn-heartbeat", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        held.end()
        thread.join()
