"""Raw usage units of a namespace (specification, Raw usage units bucket): charged usage, by hour or day.

Whole hours are read from their sums, the rest of a range at its ends from the sums of minutes, and the parts of a
minute from those of ticks. All machines of a host have their ticks in common, so the time grows neither with the number
of records nor with the number of machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from django.db.models import QuerySet

from common.bulk_rows import read_rows
from credits.amounts import amount_of_stored
from credits.services import Units
from workspaces.charging.finished import await_finished
from workspaces.charging.records import DAY, HOUR, MICRO, MINUTE, SUMS, Sums, add_sums
from workspaces.models import NamespaceHour, NamespaceMinute, NamespaceTick
from workspaces.models.usage import units_of

Span = tuple[int, int]  # the end excluded


@dataclass(slots=True)
class UnitSums:
    """Sums of records in one bucket, which begins at `start` (seconds)."""

    start: int
    sums: Sums = field(default_factory=lambda: [0] * len(SUMS))

    @property
    def records(self) -> int:
        return self.sums[0]

    @property
    def credits(self) -> Decimal:
        return amount_of_stored(self.sums[-1])

    @property
    def units(self) -> Units:
        _, cpu, memory, disk, network, _ = self.sums
        return units_of(cpu, memory, disk, network)


def usage_units(namespace_id: str, begin: int, end: int, *, by_day: bool) -> tuple[list[UnitSums], UnitSums]:
    """Return the buckets between two times (microseconds, the end excluded) in which something was charged, and their
    sum.

    Raise OperationalError if a pass of charging may still change a range that should be over (`finished`).
    """
    await_finished(end)
    size = DAY if by_day else HOUR
    buckets: dict[int, UnitSums] = {}
    total = UnitSums(begin // MICRO)
    for start, sums in _parts(namespace_id, begin, end):
        key = start // size * size
        bucket = buckets.get(key)
        if bucket is None:
            bucket = buckets[key] = UnitSums(key)
        add_sums(bucket.sums, sums)
    for bucket in buckets.values():
        add_sums(total.sums, bucket.sums)
    return [buckets[key] for key in sorted(buckets)], total


def _parts(namespace_id: str, begin: int, end: int) -> Iterator[tuple[int, Sums]]:
    """Yield start in seconds and sums of each part of a range."""
    hours, edges = split_range(begin, end, HOUR)
    yield from _stored(NamespaceHour.objects.filter(namespace_id=namespace_id), hours)
    for edge in edges:
        minutes, inside = split_range(*edge, MINUTE)
        yield from _stored(NamespaceMinute.objects.filter(namespace_id=namespace_id), minutes)
        for first, last in inside:
            yield from _ticks(namespace_id, first, last)


def split_range(begin: int, end: int, size: int = HOUR) -> tuple[Span, list[Span]]:
    """Return the whole hours (or buckets of `size` seconds) of a range, in seconds, and the rest at its two ends, in
    microseconds.
    """
    whole = size * MICRO
    first, last = -(-begin // whole) * whole, end // whole * whole
    if first > last:
        return (0, 0), [(begin, end)]
    edges = [(one, two) for one, two in ((begin, first), (last, end)) if one < two]
    return (first // MICRO, last // MICRO), edges


def _stored(rows: QuerySet[NamespaceHour] | QuerySet[NamespaceMinute], span: Span) -> Iterator[tuple[int, Sums]]:
    if span[0] == span[1]:
        return
    found = rows.filter(start__gte=span[0], start__lt=span[1])
    for start, *sums in read_rows(found.values_list("start", *SUMS)):
        yield start, sums


def _ticks(namespace_id: str, begin: int, end: int) -> Iterator[tuple[int, Sums]]:
    found = NamespaceTick.objects.filter(namespace_id=namespace_id, tick__gte=begin, tick__lt=end)
    for tick, *sums in read_rows(found.values_list("tick", *SUMS)):
        yield tick // MICRO, sums
