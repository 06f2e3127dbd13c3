"""Raw usage units of a namespace (specification, Raw usage units bucket): what was charged, by hour or day.

Whole hours come from their sums, what is left of a range at its ends from those of minutes, and only what lies inside a
minute from the records: the time does not grow with the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from django.db.models import QuerySet

from common.bulk_rows import rows_read
from credits.amounts import amount_of_stored
from credits.prices import PriceTable
from credits.services import Units
from workspaces.charging.position import position_read
from workspaces.charging.records import DAY, HOUR, MICRO, MINUTE, SUMS, Sums, add_sums
from workspaces.models import LateRecord, Metered, MeterRecord, NamespaceHour, NamespaceMinute
from workspaces.models.usage import units_of

Span = tuple[int, int]  # the end excluded
_AMOUNTS = SUMS[1:-1]


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
    """The buckets between two times (microseconds, the end excluded) in which something was charged, and their sum."""
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
    """Start in seconds, and sums."""
    hours, edges = split_range(begin, end, HOUR)
    yield from _stored(NamespaceHour.objects.filter(namespace_id=namespace_id), hours)
    rest: list[Span] = []
    for edge in edges:
        minutes, inside = split_range(*edge, MINUTE)
        yield from _stored(NamespaceMinute.objects.filter(namespace_id=namespace_id), minutes)
        rest += inside
    if rest:
        yield from _records(namespace_id, rest)


def split_range(begin: int, end: int, size: int = HOUR) -> tuple[Span, list[Span]]:
    """The whole hours (or buckets of `size` seconds) of a range, in seconds, and what is left of it at its ends, in
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
    for start, *sums in rows_read(found.values_list("start", *SUMS)):
        yield start, sums


def _records(namespace_id: str, spans: Iterable[Span]) -> Iterator[tuple[int, Sums]]:
    """Charged records of a namespace that count inside of one of the spans; two queries for each."""
    position, prices = position_read(), PriceTable.load()
    owners = Metered.objects.filter(namespace_id=namespace_id).values("pk")
    for begin, end in spans:
        # One span at a time and without an order or a condition on the id: with those the database would read all
        # records of the namespace, or all there are.
        ticks = MeterRecord.objects.filter(metered__in=owners, tick__gte=begin, tick__lt=end, laterecord=None)
        late = LateRecord.objects.filter(namespace_id=namespace_id, counted_at__gte=begin, counted_at__lt=end)
        in_time = rows_read(ticks.order_by().values_list("id", "tick", *_AMOUNTS))
        charged = [row for row in in_time if position.first_record_id < row[0] <= position.record_id]
        charged += rows_read(late.values_list("record_id", "record__tick", *(f"record__{name}" for name in _AMOUNTS)))
        for _, tick, *amounts in charged:
            # All of a span lie in one bucket.
            yield begin // MICRO, [1, *amounts, prices.stored_price(tick, *amounts)]
