"""Prices of metered usage, computed fast: in whole numbers only, from a table of rates that is loaded once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from math import lcm
from typing import Self

from common.times import EPOCH
from credits.amounts import MAX_CREDITS, amount_of_stored, stored_amount
from credits.models import Rate, Unit

# So much of a metered amount makes one unit that has a price.
CPU_NS_PER_HOUR = 3600 * 10**9
MEMORY_MB_MS_PER_GB_HOUR = 1024 * 3600 * 1000
BYTES_PER_GB = 10**9
_COMMON = lcm(CPU_NS_PER_HOUR, MEMORY_MB_MS_PER_GB_HOUR, BYTES_PER_GB)
_FACTORS = (
    (Unit.VCPU_HOUR, _COMMON // CPU_NS_PER_HOUR),
    (Unit.GB_HOUR, _COMMON // MEMORY_MB_MS_PER_GB_HOUR),
    (Unit.DISK_GB, _COMMON // BYTES_PER_GB),
    (Unit.NETWORK_GB, _COMMON // BYTES_PER_GB),
)
_MICROSECOND = timedelta(microseconds=1)
# These are before and after every time that a column of 64 bits holds.
_ALWAYS, _NEVER = -(1 << 63), 1 << 63
_MOST = stored_amount(MAX_CREDITS)


class PriceTable:
    """Table of all current rates. Amounts in the order of their times need no search for each next amount."""

    def __init__(self, rates: Iterable[Rate]) -> None:
        changes: dict[int, dict[str, int]] = {_ALWAYS: {}}
        for rate in rates:
            begin = (rate.effective_from - EPOCH) // _MICROSECOND
            changes.setdefault(begin, {})[rate.unit] = stored_amount(rate.credits)
        # Between two changes all prices are the same. A price here is the cost of one of each amount, in 1 / _COMMON of
        # 1e-8 credits.
        self._begins = sorted(changes)
        self._prices: list[tuple[int, ...]] = []
        valid: dict[str, int] = {}
        for begin in self._begins:
            valid |= changes[begin]
            self._prices.append(tuple(factor * valid.get(unit, 0) for unit, factor in _FACTORS))
        self._choose(0)

    @classmethod
    def load(cls) -> Self:
        """Return a table of all rates. One query."""
        return cls(Rate.objects.all())

    def price(self, tick: int, cpu_time_ns: int, memory_mb_ms: int, disk_bytes: int, network_bytes: int) -> Decimal:
        """Return the price of one metering tick, by the rates at its time (microseconds since the epoch).

        The price is rounded once, half to even, to 1e-8 credits. It is at most MAX_CREDITS, the most that a column
        holds. It is never negative: that would be a refund which no entry shows as one.
        """
        return amount_of_stored(self.stored_price(tick, cpu_time_ns, memory_mb_ms, disk_bytes, network_bytes))

    def stored_price(self, tick: int, cpu_time_ns: int, memory_mb_ms: int, disk_bytes: int, network_bytes: int) -> int:
        """Return the same price in 1e-8 credits."""
        if not self._from <= tick < self._until:
            self._choose(bisect_right(self._begins, tick) - 1)
        cpu, memory, disk, network = self._chosen
        whole = cpu_time_ns * cpu + memory_mb_ms * memory + disk_bytes * disk + network_bytes * network
        credits, rest = divmod(whole, _COMMON)
        if rest * 2 > _COMMON or (rest * 2 == _COMMON and credits % 2):
            credits += 1
        if 0 <= credits < _MOST:
            return credits
        return 0 if credits < 0 else _MOST

    def _choose(self, number: int) -> None:
        self._from = self._begins[number]
        self._until = self._begins[number + 1] if number + 1 < len(self._begins) else _NEVER
        self._chosen = self._prices[number]
