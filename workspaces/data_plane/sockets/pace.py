"""How fast the messages of one machine's sockets are served, however many there are and however small they are."""

from __future__ import annotations

import time
from collections.abc import Callable

# A message takes a tenth of a millisecond of the loop that all machines share. A mouse that is dragged, or a key that
# is held, makes a tenth of these; much input comes in few large messages.
A_SECOND = 1000
# Served at once after a pause.
SAVED = 1000


class MessagePace:
    """A counter of messages of one machine, in one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._saved, self._at = float(SAVED), clock()

    def next_wait(self) -> float:
        """Count one message; the seconds until the next one of its socket is served."""
        now = self._clock()
        self._saved = min(self._saved + (now - self._at) * A_SECOND, SAVED) - 1
        self._at = now
        return max(-self._saved / A_SECOND, 0.0)
