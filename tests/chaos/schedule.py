"""Which fault comes when: a function of the seed alone, so that a run can be repeated.

The machines that a fault finds differ from run to run; `pick` chooses among them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Seconds between the end of one fault and the next.
LEAST_GAP, MOST_GAP = 1.0, 7.0


@dataclass(frozen=True)
class Planned:
    """A fault, the wait before it, how long it holds, and which of its candidates it hits."""

    wait: float
    kind: str
    seconds: float
    pick: int


def planned_faults(seed: int, kinds: Sequence[str], most_seconds: float) -> Iterator[Planned]:
    """Endless. Each kind comes once before any comes again. `most_seconds`: the longest hold."""
    source = random.Random(seed)
    while True:
        deck = list(kinds)
        source.shuffle(deck)
        for kind in deck:
            wait, seconds = source.uniform(LEAST_GAP, MOST_GAP), source.uniform(2, most_seconds)
            yield Planned(round(wait, 2), kind, round(seconds, 2), source.randrange(1 << 16))
