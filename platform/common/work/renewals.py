"""A claim that is renewed from a thread of its own, while its owner works and waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, connection

from common.work.leases import ClaimLost

logger = logging.getLogger(__name__)


class HeldClaim:
    """A claim while it is held. `lost` is set when it is not held any more."""

    def __init__(self) -> None:
        self.lost, self._ended = threading.Event(), threading.Event()

    def require_held(self) -> None:
        """Raise ClaimLost."""
        if self.lost.is_set():
            raise ClaimLost

    def renew_until_ended(self, renew: Callable[[], None], seconds: float) -> None:
        """Renew until the end. A renewal that fails is tried again, by another connection: between two of them none is
        held, as many owners would have all of the pool.
        """
        while not self._ended.wait(seconds):
            try:
                renew()
            except ClaimLost:
                self.lost.set()
                return
            except (DatabaseError, InterfaceError) as exc:
                logger.warning("a claim was not renewed: %s", exc)
            finally:
                connection.close()

    def end(self) -> None:
        self._ended.set()


@contextmanager
def claim_renewed(renew: Callable[[], None], seconds: float) -> Iterator[HeldClaim]:
    """Call `renew`, which raises ClaimLost, every so many seconds within the block."""
    held = HeldClaim()
    arguments = (renew, seconds)
    thread = threading.Thread(target=held.renew_until_ended, args=arguments, name="claim-renewal", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        held.end()
        thread.join()
