"""The tiers of workspace usage (specification, Usage objects): resolution and time covered by each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MINUTE, HOUR, DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier, with durations in seconds. Each tier covers `window`, from now back, the newest time included."""

    number: int
    resolution: int
    window: int

    def floor(self, at: float) -> int:
        """Return the start of the bucket that contains that time."""
        return int(at // self.resolution) * self.resolution

    def starts(self, since: float, until: float, now: float) -> Iterator[int]:
        """Yield the starts of the buckets that begin before `until` and end after `since`, as far as the tier covers
        them.
        """
        first = self.floor(max(since, now - self.window))
        yield from range(first, int(min(until, now)) + 1, self.resolution)


TIERS = (
    Tier(0, 1, 2 * MINUTE),
    Tier(1, 10, 15 * MINUTE),
    Tier(2, MINUTE, HOUR),
    Tier(3, 10 * MINUTE, 6 * HOUR),
    Tier(4, HOUR, 3 * DAY),
    Tier(5, DAY, 90 * DAY),
)
# Tiers 0 and 1 are in Redis; these are in the database, written by the sampler (2) or rolled up from the finer tier.
STORED = TIERS[2:]
MINUTES = TIERS[2]


def tier_reaching(age: float) -> Tier:
    """Return the finest tier that covers that many seconds, or the coarsest if none does."""
    return next((tier for tier in TIERS if tier.window >= age), TIERS[-1])
