"""The load of this host's processors: work that can wait is done while they have nothing else to do."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")
# A host is quiet if its processors had nothing to do for this share of some seconds.
_IDLE_SHARE = 0.3


class Ticks(NamedTuple):
    """Ticks of all processors since the host's boot."""

    idle: int
    total: int


def cpu_ticks() -> Ticks:
    """Return the ticks until now."""
    ticks = [int(number) for number in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return Ticks(ticks[3], sum(ticks))


def was_quiet(before: Ticks, now: Ticks) -> bool:
    """Return whether the host was quiet between the two."""
    return now.idle - before.idle > _IDLE_SHARE * (now.total - before.total)
