"""Metering records with their prices, and their sums for reports, charges and billing cycles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from common.bulk_rows import Row
from credits.metered_charges import MeteredCharge
from credits.prices import PriceTable

MICRO = 1_000_000
MINUTE, HOUR, DAY = 60, 3600, 86400
# Columns of a MeterRecord, for `sum_records`.
COLUMNS = (
    "id", "tick", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes",
    "metered_id", "metered__account_id", "metered__namespace_id", "metered__workspace_id",
)  # fmt: skip
# The columns of ChargedSums.
SUMS = ("records", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes", "credits")
Sums = list[int]  # in the order of SUMS; credits as they are stored


@dataclass(slots=True)
class RecordSums:
    """Sums of a batch of records. `hours`: by the number in Metered and the hour's start; `ticks`: by namespace and
    microsecond, both at the time at which a record counts. `late`: records with another one than their tick.
    """

    owners: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # account, namespace, workspace
    hours: dict[tuple[int, int], Sums] = field(default_factory=dict)
    ticks: dict[tuple[str, int], Sums] = field(default_factory=dict)
    late: list[Row] = field(default_factory=list)  # record, namespace, counted at

    def workspaces(self) -> dict[int, Sums]:
        """Return the sums by the number in Metered."""
        return _folded((metered, sums) for (metered, _), sums in self.hours.items())

    def namespace_sums(self, size: int) -> dict[tuple[str, int], Sums]:
        """Return the sums by namespace and the start of the hour or minute (`size` in seconds)."""
        return _folded(((key, tick // MICRO // size * size), sums) for (key, tick), sums in self.ticks.items())

    def charges(self) -> list[MeteredCharge]:
        """Return the credits of each workspace in each namespace, in order, without workspaces that cost nothing."""
        found = self.workspaces().items()
        return sorted(MeteredCharge(*self.owners[metered], sums[-1]) for metered, sums in found if sums[-1])


def _folded(parts: Iterable[tuple[Any, Sums]]) -> dict[Any, Sums]:
    found: dict[Any, Sums] = {}
    for key, sums in parts:
        each = found.get(key)
        if each is None:
            found[key] = sums
        else:
            # This makes a new list: the first one belongs to the caller.
            found[key] = [one + more for one, more in zip(each, sums, strict=True)]
    return found


def add_sums(sums: Sums, more: Iterable[int]) -> None:
    for number, value in enumerate(more):
        sums[number] += value


def sum_records(rows: Iterable[tuple[Any, ...]], prices: PriceTable, counted_from: int) -> RecordSums:
    """Return the sums of rows of COLUMNS. A record with a tick before `counted_from` (microseconds) counts at that
    time.
    """
    found = RecordSums()
    owners, hours, ticks, price = found.owners, found.hours, found.ticks, prices.stored_price
    # Charging costs a few microseconds for each of thousands of records, so that nothing but the price is called here.
    for number, tick, cpu, memory, disk, network, metered, account, namespace, workspace in rows:
        credits = price(tick, cpu, memory, disk, network)
        at = tick
        if tick < counted_from:
            at = counted_from
            found.late.append((number, namespace, at))
        hour = (metered, at // 3_600_000_000 * 3600)
        sums = hours.get(hour)
        if sums is None:
            owners[metered] = (account, namespace, workspace)
            hours[hour] = [1, cpu, memory, disk, network, credits]
        else:
            sums[0] += 1
            sums[1] += cpu
            sums[2] += memory
            sums[3] += disk
            sums[4] += network
            sums[5] += credits
        sums = ticks.get((namespace, at))
        if sums is None:
            ticks[namespace, at] = [1, cpu, memory, disk, network, credits]
        else:
            sums[0] += 1
            sums[1] += cpu
            sums[2] += memory
            sums[3] += disk
            sums[4] += network
            sums[5] += credits
    return found
