"""What raw samples cost: an integration over them in fractions. Nothing of the product is imported here.

Times are microseconds since 1970, credits whole numbers of 1e-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

CPU, DISK_READ, DISK_WRITE, RECEIVED, SENT = range(5)
NANOSECONDS_OF_AN_HOUR = 3_600_000_000_000
MEGABYTE_MILLISECONDS_OF_A_GB_HOUR = 1024 * 3_600_000
GB = 1_000_000_000
Counters = tuple[int, ...]
NOTHING: Counters = (0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Raw:
    """What a hypervisor showed of a machine at one moment. `process`: its number; counters begin at zero with each."""

    process: int
    counters: Counters


def used_between(before: Raw | None, now: Raw) -> Counters:
    """Of one process what its counters grew by, and nothing where they ran backwards; of a new one all it has."""
    if before is None or before.process != now.process:
        return now.counters
    return tuple(max(new - old, 0) for old, new in zip(before.counters, now.counters, strict=True))


def used_along(before: Raw | None, path: Sequence[Raw]) -> Counters:
    """The integral from one sample over those that followed it."""
    total = NOTHING
    for now in path:
        total = plus(total, used_between(before, now))
        before = now
    return total


def plus(one: Counters, other: Counters) -> Counters:
    return tuple(a + b for a, b in zip(one, other, strict=True))


@dataclass
class Prices:
    """Credits for a unit, by the time from which they are valid."""

    of: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, unit: str, since: int, credits: int) -> None:
        self.of.setdefault(unit, []).append((since, credits))

    def at(self, unit: str, moment: int) -> int:
        valid = [(since, credits) for since, credits in self.of.get(unit, []) if since <= moment]
        return max(valid)[1] if valid else 0

    def exact(self, moment: int, used: Counters, megabyte_milliseconds: int) -> Fraction:
        """Not rounded."""
        return (
            Fraction(used[CPU], NANOSECONDS_OF_AN_HOUR) * self.at("vcpu_hour", moment)
            + Fraction(megabyte_milliseconds, MEGABYTE_MILLISECONDS_OF_A_GB_HOUR) * self.at("gb_hour", moment)
            + Fraction(used[DISK_READ] + used[DISK_WRITE], GB) * self.at("disk_gb", moment)
            + Fraction(used[RECEIVED] + used[SENT], GB) * self.at("network_gb", moment)
        )

    def rounded(self, moment: int, used: Counters, megabyte_milliseconds: int) -> int:
        """Half to even."""
        return round(self.exact(moment, used, megabyte_milliseconds))
