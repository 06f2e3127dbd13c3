"""Prices of metered usage, fast: whole numbers only, a table of the rates that is loaded once for many amounts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from math import lcm
from typing import Self

from common.times import EPOCH
from credits.amounts import amount_of_stored, stored_amount
from credits.models import Rate, Unit

# How much of what is metered makes one unit that has a price.
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


class PriceTable:
    """All rates as they are now."""

    def __init__(self, rates: Iterable[Rate]) -> None:
        self._begins: dict[str, list[int]] = {unit: [] for unit in Unit}
        self._credits: dict[str, list[int]] = {unit: [] for unit in Unit}
        for rate in sorted(rates, key=lambda each: each.effective_from):
            self._begins[rate.unit].append((rate.effective_from - EPOCH) // _MICROSECOND)
            self._credits[rate.unit].append(stored_amount(rate.credits))

    @classmethod
    def load(cls) -> Self:
        """One query."""
        return cls(Rate.objects.all())

    def price(self, tick: int, cpu_time_ns: int, memory_mb_ms: int, disk_bytes: int, network_bytes: int) -> Decimal:
        """Of what one metering tick measured, by the rates at that time (microseconds since the epoch).

        Rounded once, half to even, to 1e-8 credits.
        """
        amounts = (cpu_time_ns, memory_mb_ms, disk_bytes, network_bytes)
        whole = sum(
            amount * factor * self._rate(unit, tick) for amount, (unit, factor) in zip(amounts, _FACTORS, strict=True)
        )
        credits, rest = divmod(whole, _COMMON)
        if rest * 2 > _COMMON or (rest * 2 == _COMMON and credits % 2):
            credits += 1
        return amount_of_stored(credits)

    def _rate(self, unit: Unit, tick: int) -> int:
        """1e-8 credits for a unit at that time; zero before its first rate."""
        number = bisect_right(self._begins[unit], tick)
        return self._credits[unit][number - 1] if number else 0
