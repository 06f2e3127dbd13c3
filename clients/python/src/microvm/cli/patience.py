"""Repetitions of what goes on for long: a service that goes away, as during an upgrade, is waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from microvm.retries import Retries

LONGEST_NAMED_WAIT = 30.0  # seconds, of a Retry-After
REPORTED_AFTER = 5  # attempts; shorter failures are not reported


@dataclass(frozen=True)
class Patience(Retries):
    """Two minutes of refused connections at least, three at most; `say` gets one sentence for each outage."""

    attempts: int = 66
    longest_wait: float = 4.0
    say: Callable[[str], None] = field(default=lambda _: None, compare=False)

    def wait_before_next(self, attempt: int, retry_after: float | None) -> float | None:
        """As that of all requests; a service that names a longer wait gets it, up to half a minute."""
        wait = super().wait_before_next(attempt, None)
        if wait is None:
            return None
        if attempt == REPORTED_AFTER:
            self.say("The service does not answer; it is tried again for two minutes.")
        return max(wait, min(retry_after or 0.0, LONGEST_NAMED_WAIT))
