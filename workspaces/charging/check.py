"""Whether charges, sums, billing cycles and the metering records agree by the rates, and the runs of `ledger_check`."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from django.db.models import Exists, F, OuterRef, Sum
from django.utils import timezone

from common.snapshots import read_snapshot
from credits.amounts import amount_of_stored, stored_amount
from credits.ledger_check import CHUNK, Counts, balance_drifts, check_begin, check_begin_nightly, check_end
from credits.models import Balance, LedgerCheck, Service
from credits.prices import PriceTable
from workspaces.charging.position import position_read
from workspaces.charging.records import HOUR, MICRO, SUMS, Sums, add_sums
from workspaces.models import (
    BillingCycle,
    CycleUsage,
    Metered,
    MeterRecord,
    NamespaceHour,
    NamespaceMinute,
    WorkspaceHour,
)

logger = logging.getLogger(__name__)

NIGHT = 2  # the hour of UTC from which the nightly check runs
WORKSPACES = 20  # whose hours are in memory at once
_AMOUNTS = SUMS[1:-1]
Hours = dict[tuple[int, int], Sums]  # by the number in Metered, and the hour


def ledger_check(check: LedgerCheck, show: Callable[[str], object] = logger.error) -> int:
    """Compare everything in one snapshot of the database, show each difference, and store the result in the row.
    Returns how many there are. What it takes in memory does not grow with the ledger or the records, and no writer
    waits for it.
    """
    counts, sentences, differences = Counts(), list[str](), 0
    try:
        with read_snapshot():
            for sentence in all_drifts(counts):
                show(sentence)
                differences += 1
                if len(sentences) < CHUNK:
                    sentences.append(sentence)
    except BaseException as exc:
        check_end(check, counts, [f"{type(exc).__name__}: {exc}", *sentences], None)
        raise
    check_end(check, counts, sentences, differences)
    return differences


def ledger_check_by_hand(show: Callable[[str], object]) -> int:
    """As `ledger_check`, with a row of its own."""
    return ledger_check(check_begin(), show)


def ledger_check_nightly() -> int | None:
    """Once in each night; None where it was made already, or it is not night yet. A process that dies leaves its row,
    and the check is made again after hours.
    """
    if timezone.now().hour < NIGHT:
        return None
    check = check_begin_nightly()
    return None if check is None else ledger_check(check)


def all_drifts(counts: Counts) -> Iterator[str]:
    """A sentence for each difference; to be read inside of a snapshot."""
    counts.metered_after = position_read().first_cycle_entry_id
    return chain(balance_drifts(counts, charge_drifts), sum_drifts(counts), _cycle_drifts(counts))


def charge_drifts(namespace_id: str, charged: Mapping[str, int]) -> Iterator[str]:
    """A sentence for each workspace of a namespace that was charged another amount than its hours sum to."""
    rows = WorkspaceHour.objects.filter(metered__namespace_id=namespace_id).order_by()
    wanted = defaultdict[str, int](int)
    for workspace, credits in rows.values_list("metered__workspace_id").annotate(sum=Sum("credits")):
        wanted[workspace] = stored_amount(credits)
    for workspace in sorted({*charged, *wanted}):
        if charged.get(workspace, 0) != wanted[workspace]:
            yield (
                f"{workspace} in {namespace_id}: entries charge {_shown(charged.get(workspace, 0))}, "
                f"and its hours sum to {_shown(wanted[workspace])}"
            )


def sum_drifts(counts: Counts) -> Iterator[str]:
    """A sentence for each sum of hours or minutes that is not that of the charged records."""
    prices = PriceTable.load()
    owners = Metered.objects.order_by("namespace_id").values_list("namespace_id", flat=True).distinct()
    for namespace_id in owners.iterator(chunk_size=CHUNK):
        hours = defaultdict[int, Sums](lambda: [0] * len(SUMS))
        metered = Metered.objects.filter(namespace_id=namespace_id).order_by("pk")
        rows = metered.values_list("pk", "workspace_id").iterator(chunk_size=CHUNK)
        while some := dict(islice(rows, WORKSPACES)):
            yield from _workspace_drifts(some, namespace_id, prices, hours, counts)
        yield from _namespace_drifts(namespace_id, hours)
    yield from _unowned()


def _workspace_drifts(
    names: Mapping[int, str], namespace_id: str, prices: PriceTable, hours: dict[int, Sums], counts: Counts
) -> Iterator[str]:
    """Adds what their hours are to `hours`."""
    stored = _stored_hours(names)
    wanted = _hours_of_records(names, prices, counts)
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
            f"{names[key]} in {namespace_id}: charged {_shown(charged)}, and its records cost {_shown(cost)}; "
            f"{len(starts)} of its hours differ, the first is {starts[0]}"
        )


def _stored_hours(names: Iterable[int]) -> Hours:
    rows = WorkspaceHour.objects.filter(metered__in=list(names)).values_list("metered_id", "start", *SUMS)
    return {
        (key, start): [*amounts, stored_amount(credits)]
        for key, start, *amounts, credits in rows.iterator(chunk_size=CHUNK)
    }


def _hours_of_records(names: Iterable[int], prices: PriceTable, counts: Counts) -> Hours:
    position = position_read()
    rows = MeterRecord.objects.filter(
        metered__in=list(names), id__gt=position.first_record_id, id__lte=position.record_id
    ).order_by()
    found: Hours = {}
    columns = rows.values_list("metered_id", "tick", "laterecord__counted_at", *_AMOUNTS)
    for key, tick, late, *amounts in columns.iterator(chunk_size=CHUNK):
        counts.records += 1
        start = (late or tick) // MICRO // HOUR * HOUR
        add_sums(found.setdefault((key, start), [0] * len(SUMS)), (1, *amounts, prices.stored_price(tick, *amounts)))
    return found


def _namespace_drifts(namespace_id: str, hours: Mapping[int, Sums]) -> Iterator[str]:
    """The stored hours of the namespace, and the sums of its minutes, beside `hours`."""
    minutes = defaultdict[int, Sums](lambda: [0] * len(SUMS))
    for name, model in (("hours", NamespaceHour), ("minutes", NamespaceMinute)):
        found = defaultdict[int, Sums](lambda: [0] * len(SUMS)) if name == "hours" else minutes
        rows = model.objects.filter(namespace_id=namespace_id).order_by()
        for start, *amounts, credits in rows.values_list("start", *SUMS).iterator(chunk_size=CHUNK):
            add_sums(found[start // HOUR * HOUR], (*amounts, stored_amount(credits)))
        wrong = _different(found, hours)
        if wrong:
            yield f"{namespace_id}: {len(wrong)} hours are not the sums of its workspaces by {name}, first {wrong[0]}"


def _different(one: Mapping[int, Sums], two: Mapping[int, Sums]) -> Sequence[int]:
    return sorted(start for start in {*one, *two} if one.get(start) != two.get(start))


def _unowned() -> Iterator[str]:
    """Sums of namespaces to which nothing metered belongs, and costs that are in no balance."""
    owners = Metered.objects.filter(namespace_id=OuterRef("namespace_id"))
    balances = Balance.objects.filter(namespace_id=OuterRef("namespace_id"), service=Service.SANDBOX)
    sums = NamespaceHour.objects.order_by()
    for text, rows in (
        ("nothing was metered there", sums.exclude(Exists(owners))),
        ("it has no balance", sums.filter(credits__gt=0).exclude(Exists(balances))),
    ):
        for key in rows.values_list("namespace_id", flat=True).distinct():
            yield f"{key}: sums of hours, and {text}"


def _cycle_drifts(counts: Counts) -> Iterator[str]:
    """Each charge is in one billing cycle: in what was reported, or in what is not reported yet."""
    reported = BillingCycle.objects.aggregate(sum=Sum("credits"))["sum"] or 0
    waiting = CycleUsage.objects.aggregate(sum=Sum("credits"))["sum"] or 0
    found = stored_amount(reported) + stored_amount(waiting)
    if found != counts.metered:
        yield f"billing cycles sum to {_shown(found)}, and the entries charged in them to {_shown(counts.metered)}"
    left = CycleUsage.objects.exclude(cycle__closed_at=None).count()
    passed = CycleUsage.objects.filter(metered_id__lte=F("cycle__reported_id")).count()
    if left or passed:
        yield f"billing cycles: {left} workspaces of closed ones, and {passed} before a position, are not reported"


def _shown(stored: int) -> str:
    return f"{amount_of_stored(stored):f}"
