"""Raw usage units of a namespace (specification, Raw usage units bucket): what was charged, by hour or day.

Whole hours come from their sums, the beginnings and ends of a range that lie inside an hour from the records: the time
does not grow with the number of records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Q

from credits.prices import PriceTable
from credits.services import Units
from workspaces.charging.hours import HOUR, MICRO, hour_of
from workspaces.charging.records import COLUMNS, ChargedRecord, read_records
from workspaces.charging.services import ONLY
from workspaces.models import ChargePosition, LateRecord, MeterRecord, NamespaceHour
from workspaces.models.usage import units_of

DAY = 86400
Span = tuple[int, int]  # microseconds, the end excluded


@dataclass(slots=True)
class UnitSums:
    """Sums of records in one bucket, which begins at `start` (seconds)."""

    start: int
    records: int = 0
    amounts: tuple[int, int, int, int] = (0, 0, 0, 0)
    credits: Decimal = Decimal(0)

    def add(self, records: int, amounts: Sequence[int], credits: Decimal) -> None:
        self.records += records
        cpu, memory, disk, network = (one + more for one, more in zip(self.amounts, amounts, strict=True))
        self.amounts = (cpu, memory, disk, network)
        self.credits += credits

    @property
    def units(self) -> Units:
        return units_of(*self.amounts)


def usage_units(namespace_id: str, begin: int, end: int, *, by_day: bool) -> tuple[list[UnitSums], UnitSums]:
    """The buckets between two times (microseconds, the end excluded) in which something was charged, and their sum."""
    size = DAY if by_day else HOUR
    buckets: dict[int, UnitSums] = {}
    total = UnitSums(begin // MICRO)
    for start, records, amounts, credits in _parts(namespace_id, begin, end):
        key = start // size * size
        for sums in (buckets.setdefault(key, UnitSums(key)), total):
            sums.add(records, amounts, credits)
    return [buckets[key] for key in sorted(buckets)], total


def _parts(namespace_id: str, begin: int, end: int) -> Iterator[tuple[int, int, Sequence[int], Decimal]]:
    """Start in seconds, number of records, amounts, credits."""
    whole, edges = split_range(begin, end)
    if whole[0] < whole[1]:
        rows = NamespaceHour.objects.filter(namespace_id=namespace_id, start__gte=whole[0], start__lt=whole[1])
        for row in rows.order_by("start"):
            amounts = (row.cpu_time_ns, row.memory_mb_ms, row.disk_bytes, row.network_bytes)
            yield row.start, row.records, amounts, row.credits
    if edges:
        for record in _records(namespace_id, edges):
            yield hour_of(record.counted_at), 1, record.amounts, record.credits


def split_range(begin: int, end: int) -> tuple[Span, list[Span]]:
    """The whole hours of a range, in seconds, and what is left of it at its ends, in microseconds."""
    hour = HOUR * MICRO
    first, last = -(-begin // hour) * hour, end // hour * hour
    if first > last:
        return (0, 0), [(begin, end)]
    edges = [(one, two) for one, two in ((begin, first), (last, end)) if one < two]
    return (first // MICRO, last // MICRO), edges


def _records(namespace_id: str, spans: Sequence[Span]) -> Iterator[ChargedRecord]:
    """Charged records of a namespace that count inside of one of the spans."""
    position = ChargePosition.objects.filter(pk=ONLY).first() or ChargePosition()
    charged = MeterRecord.objects.filter(id__gt=position.first_record_id, id__lte=position.record_id)
    late = LateRecord.objects.filter(_within("counted_at", spans), namespace_id=namespace_id)
    counted_at = dict(late.values_list("record", "counted_at"))
    in_time = charged.filter(_within("tick", spans), metered__namespace_id=namespace_id, laterecord=None)
    prices = PriceTable.load()
    yield from read_records(in_time.values_list(*COLUMNS).iterator(), prices)
    for record in read_records(charged.filter(id__in=list(counted_at)).values_list(*COLUMNS), prices):
        record.counted_at = counted_at[record.id]
        yield record


def _within(name: str, spans: Sequence[Span]) -> Q:
    found = Q()
    for begin, end in spans:
        found |= Q(**{f"{name}__gte": begin, f"{name}__lt": end})
    return found
