"""Check whether charges, and the sums of hours, minutes and ticks, agree with the charged records and the rates.

Only the hours of some workspaces' records are in memory at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from common.exact_sums import exact_sum
from credits.amounts import amount_of_stored, stored_amount
from credits.ledger_check import CHUNK, Counts
from credits.models import Balance, Service
from credits.prices import PriceTable
from workspaces.charging.position import read_position
from workspaces.charging.records import HOUR, MICRO, MINUTE, SUMS, Sums, add_sums
from workspaces.models import (
    LateRecord,
    Metered,
    MeterRecord,
    NamespaceHour,
    NamespaceMinute,
    NamespaceTick,
    WorkspaceHour,
)

WORKSPACES = 20  # whose hours are in memory at once
_AMOUNTS = SUMS[1:-1]
# Seconds before every time that a column of microseconds holds.
_ALWAYS = -(1 << 63) // MICRO + 1
Hours = dict[tuple[int, int], Sums]  # by the number in Metered, and the hour
Owner = tuple[str, int, str]  # namespace, number in Metered, workspace


@dataclass(slots=True)
class CheckWindow:
    """Part of the sums that is compared: the hours from `begin` (seconds) on of workspaces that have a record after
    `hour_record_id`. `charged`: the amounts of the entries for records after `record_id`, by namespace and workspace.
    """

    begin: int
    hour_record_id: int
    record_id: int
    charged: dict[tuple[str, str], int] = field(default_factory=dict)


def charge_drifts(namespace_id: str, charged: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each workspace of a namespace that was charged another amount than its hours sum to."""
    rows = WorkspaceHour.objects.filter(metered__namespace_id=namespace_id).order_by()
    wanted = defaultdict[str, int](int)
    for workspace, credits in rows.values_list("metered__workspace_id").annotate(sum=exact_sum("credits")):
        wanted[workspace] = credits
    for workspace in sorted({*charged, *wanted}):
        if charged.get(workspace, 0) != wanted[workspace]:
            yield (
                f"{workspace} in {namespace_id}: entries charge {shown_credits(charged.get(workspace, 0))}, "
                f"and its hours sum to {shown_credits(wanted[workspace])}"
            )


def sum_drifts(counts: Counts, window: CheckWindow | None = None) -> Iterator[str]:
    """Yield a sentence for each sum of hours or minutes that is not the sum of the charged records. With a window of
    new records: also for each workspace that was charged another amount than its new records cost.
    """
    check = _SumCheck(counts, window)
    for namespace_id, owners in groupby(_owners(window), key=lambda row: row[0]):
        hours = defaultdict[int, Sums](lambda: [0] * len(SUMS))
        rows = iter(owners)
        while some := {number: workspace for _, number, workspace in islice(rows, WORKSPACES)}:
            yield from check.workspace_drifts(some, namespace_id, hours)
        yield from check.namespace_drifts(namespace_id, hours)
        yield from check.tick_drifts(namespace_id)
    if window is None:
        yield from _unowned()
    else:
        yield from _charge_drifts_of(window, check.costs)


def _owners(window: CheckWindow | None) -> Iterable[Owner]:
    """Return the owners of records, ordered by namespace."""
    columns = ("namespace_id", "pk", "workspace_id")
    if window is None:
        return Metered.objects.order_by("namespace_id", "pk").values_list(*columns).iterator(chunk_size=CHUNK)
    # Two steps, because a database that joins them may read all owners that exist.
    records = MeterRecord.objects.filter(id__gt=window.hour_record_id, id__lte=read_position().record_id).order_by()
    ids = sorted(records.values_list("metered_id", flat=True).distinct())
    some = (ids[first : first + CHUNK] for first in range(0, len(ids), CHUNK))
    return sorted(chain.from_iterable(Metered.objects.filter(pk__in=part).values_list(*columns) for part in some))


class _SumCheck:
    """Check of the sums. `costs`: of the window's new records, by namespace and workspace."""

    def __init__(self, counts: Counts, window: CheckWindow | None) -> None:
        self.counts, self.window = counts, window
        self.prices, self.position = PriceTable.load(), read_position()
        self.costs = defaultdict[tuple[str, str], int](int)

    def workspace_drifts(self, names: Mapping[int, str], namespace_id: str, hours: dict[int, Sums]) -> Iterator[str]:
        """Yield a sentence for each workspace whose hours differ from its records. Its stored hours are added to
        `hours`.
        """
        stored = self._stored_hours(names)
        wanted = self._hours_of_records(names, namespace_id)
        for (_, start), sums in stored.items():
            add_sums(hours[start], sums)
        wrong = defaultdict[int, list[int]](list)
        for key, start in sorted({*stored, *wanted}):
            if stored.get((key, start)) != wanted.get((key, start)):
                wrong[key].append(start)
        for key, starts in wrong.items():
            charged, cost = (
                sum(sums[-1] for (owner, _), sums in part.items() if owner == key) for part in (stored, wanted)
            )
            yield (
                f"{names[key]} in {namespace_id}: charged {shown_credits(charged)}, and its records cost "
                f"{shown_credits(cost)}; {len(starts)} of its hours differ, the first is {starts[0]}"
            )

    def namespace_drifts(self, namespace_id: str, hours: Mapping[int, Sums]) -> Iterator[str]:
        """Compare the stored hours of the namespace, and the sums of its minutes, with `hours`. Yield a sentence for
        each difference.
        """
        for name, model in (("hours", NamespaceHour), ("minutes", NamespaceMinute)):
            found = defaultdict[int, Sums](lambda: [0] * len(SUMS))
            rows = model.objects.filter(namespace_id=namespace_id, start__gte=self._begin).order_by()
            for start, *amounts, credits in rows.values_list("start", *SUMS).iterator(chunk_size=CHUNK):
                add_sums(found[start // HOUR * HOUR], (*amounts, stored_amount(credits)))
            if wrong := _different(found, hours):
                found_in = f"hours are not the sums of its workspaces by {name}"
                yield f"{namespace_id}: {len(wrong)} {found_in}, first {wrong[0]}"

    def tick_drifts(self, namespace_id: str) -> Iterator[str]:
        """Compare the stored minutes of the namespace with the sums of their ticks, read in order. Yield a sentence for
        each difference.
        """
        owned = {"namespace_id": namespace_id}
        minutes = NamespaceMinute.objects.filter(**owned, start__gte=self._begin).order_by("start")
        ticks = NamespaceTick.objects.filter(**owned, tick__gte=self._begin * MICRO).order_by("tick")
        wrong, first = 0, 0
        for start, rows in groupby(merge(_by_minute(minutes, 0), _by_minute(ticks, 1)), key=itemgetter(0)):
            sums = [0] * len(SUMS), [0] * len(SUMS)
            for _, which, amounts in rows:
                add_sums(sums[which], amounts)
            if sums[0] != sums[1]:
                wrong, first = wrong + 1, first if wrong else start
        if wrong:
            yield f"{namespace_id}: {wrong} minutes are not the sums of their ticks, first {first}"

    @property
    def _begin(self) -> int:
        return self.window.begin if self.window else _ALWAYS

    def _stored_hours(self, names: Iterable[int]) -> Hours:
        rows = WorkspaceHour.objects.filter(metered__in=list(names), start__gte=self._begin)
        columns = rows.values_list("metered_id", "start", *SUMS)
        return {
            (key, start): [*amounts, stored_amount(credits)]
            for key, start, *amounts, credits in columns.iterator(chunk_size=CHUNK)
        }

    def _hours_of_records(self, names: Mapping[int, str], namespace_id: str) -> Hours:
        found: Hours = {}
        columns = ("id", "metered_id", "tick", "laterecord__counted_at", *_AMOUNTS)
        for rows in self._records(list(names), namespace_id):
            for number, key, tick, late, *amounts in rows.order_by().values_list(*columns).iterator(chunk_size=CHUNK):
                # This is not a condition of the query, with which the database would read all records that exist.
                if not self.position.first_record_id < number <= self.position.record_id:
                    continue
                self.counts.records += 1
                price = self.prices.stored_price(tick, *amounts)
                start = (late or tick) // MICRO // HOUR * HOUR
                add_sums(found.setdefault((key, start), [0] * len(SUMS)), (1, *amounts, price))
                if self.window and number > self.window.record_id:
                    self.costs[namespace_id, names[key]] += price
        return found

    def _records(self, names: list[int], namespace_id: str) -> list[QuerySet[MeterRecord]]:
        records = MeterRecord.objects.filter(metered__in=names)
        if self.window is None:
            return [records]
        begin = self.window.begin * MICRO
        late = LateRecord.objects.filter(namespace_id=namespace_id, counted_at__gte=begin).values("record")
        return [records.filter(tick__gte=begin, laterecord=None), records.filter(pk__in=late)]


def _charge_drifts_of(window: CheckWindow, costs: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for key in sorted({*window.charged, *costs}):
        charged, cost = window.charged.get(key, 0), costs.get(key, 0)
        if charged != cost:
            yield (
                f"{key[1]} in {key[0]}: new entries charge {shown_credits(charged)}, and its new records cost "
                f"{shown_credits(cost)}"
            )


def _by_minute(rows: QuerySet[Any], which: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the start of each minute in seconds, `which`, and the sums of its rows of minutes (0) or ticks (1), in
    order.
    """
    column, unit = ("start", 1) if which == 0 else ("tick", MICRO)
    for moment, *amounts, credits in rows.values_list(column, *SUMS).iterator(chunk_size=CHUNK):
        yield moment // unit // MINUTE * MINUTE, which, [*amounts, stored_amount(credits)]


def _different(one: Mapping[int, Sums], two: Mapping[int, Sums]) -> Sequence[int]:
    return sorted(start for start in {*one, *two} if one.get(start) != two.get(start))


def _unowned() -> Iterator[str]:
    """Yield a sentence for each namespace that has sums, but nothing metered or no balance."""
    owners = Metered.objects.filter(namespace_id=OuterRef("namespace_id"))
    balances = Balance.objects.filter(namespace_id=OuterRef("namespace_id"), service=Service.SANDBOX)
    sums = NamespaceHour.objects.order_by()
    for text, rows in (
        ("nothing was metered there", sums.exclude(Exists(owners))),
        ("it has no balance", sums.filter(credits__gt=0).exclude(Exists(balances))),
    ):
        for key in rows.values_list("namespace_id", flat=True).distinct():
            yield f"{key}: it has sums of hours, but {text}"


def shown_credits(stored: int) -> str:
    return f"{amount_of_stored(stored):f}"
