"""Checks whether balances, the ledger, holds and the days' spending agree: each is computed from the others and
compared.

`balance_drifts` reads the ledger once, in the order of its index. It keeps in memory the data of one balance, and a row
for each balance. `new_balance_drifts` reads for each balance only what came since the last check that found nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.utils import timezone

from credits.amounts import MAX_CREDITS, amount_of_stored, stored_amount
from credits.metered_charges import DESCRIPTION
from credits.models import (
    Balance,
    CheckedBalance,
    Entry,
    EntryKind,
    Hold,
    Service,
    Spending,
)

CHUNK = 2000
_FULL = stored_amount(MAX_CREDITS)  # a day that would have more stays at this
_BALANCE = ("pk", "namespace_id", "service", "used", "held", "in_holds")
_ENTRY = ("balance", "id", "kind", "amount", "balance_after", "workspace_id", "description")
# (namespace id, credits by workspace): compares the metered charges of a namespace with other records.
CompareCharges = Callable[[str, Mapping[str, int]], Iterable[str]]


@dataclass(slots=True)
class Counts:
    """Counts of what a check has read.

    `metered`: the sum of the metered charges after the entry `metered_after`, as stored. `checked`: up to where the
    balances agree, if nothing else differs.
    """

    entries: int = 0
    records: int = 0
    balances: int = 0
    metered_after: int = 0
    metered: int = 0
    checked: list[CheckedBalance] = field(default_factory=list)


@dataclass(slots=True)
class _Sums:
    """Sums of the entries of one balance, as they are stored."""

    used: int = 0
    spent: int = 0
    newest: int = 0  # the id of the last one
    charged: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def balance_drifts(counts: Counts, compare: CompareCharges) -> Iterator[str]:
    """Yield a sentence for each difference that a full check finds.

    Differences are: a balance that is not the sum of its entries and holds, an entry whose balance is wrong, and a
    balance whose days do not add up to its charges and refunds.
    """
    entries = _Merged(groupby(_entries(), key=lambda row: row[0]))
    days = _Merged(groupby(_days(), key=lambda row: row[0]))
    for key, namespace_id, service, used, held, holds in _balances():
        counts.balances += 1
        found, name = _Sums(), _name(key, service, namespace_id)
        yield from _entry_drifts(entries.take(key), service, found, counts)
        spent = list(days.take(key))
        yield from _day_drifts(name, [row[1] for row in spent], found.spent)
        yield from _column_drifts(name, (used, held), (found.used, stored_amount(holds or 0)))
        counts.checked.append(_checked(key, found, [row[1:] for row in spent]))
        if service == Service.SANDBOX:
            yield from compare(namespace_id, found.charged)


def new_balance_drifts(counts: Counts, charged: dict[tuple[str, str], int]) -> Iterator[str]:
    """Do what `balance_drifts` does, for what is new since the balances were checked.

    Without new entries only the columns are compared. Adds to `charged` what the new metered entries charge, by
    namespace and workspace. The cost depends on the number of balances, not on the length of their history.
    """
    for key, namespace_id, service, used, held, holds, newest, *before in _balances_with_positions():
        counts.balances += 1
        last, used_then, day, spent_then = before
        found, name = _Sums(stored_amount(used_then or 0), newest=last or 0), _name(key, service, namespace_id)
        if newest is not None and newest != last:
            rows = Entry.objects.filter(balance=key, id__gt=last or 0).order_by("id").values_list(*_ENTRY)
            yield from _entry_drifts(_streamed(rows), service, found, counts)
            days = Spending.objects.filter(balance=key).order_by("-day").values_list("credits", "day")
            spent = list(days if day is None else days.filter(day__gte=day))
            yield from _day_drifts(name, [row[0] for row in spent], found.spent + stored_amount(spent_then or 0))
            counts.checked.append(_checked(key, found, spent))
            for workspace, amount in found.charged.items():
                charged[namespace_id, workspace] = charged.get((namespace_id, workspace), 0) + amount
        yield from _column_drifts(name, (used, held), (found.used, stored_amount(holds or 0)))


def _name(key: int, service: str, namespace_id: str) -> str:
    return f"balance {key} ({service} of {namespace_id})"


def _checked(key: int, found: _Sums, days: Sequence[tuple[Decimal, date]]) -> CheckedBalance:
    """Return how far a balance was checked.

    `days`: the newest days, in falling order. A clock that was ahead may have made days that are still to come.
    """
    first = min(days[0][1], timezone.now().date()) if days else None
    spent = sum((credits for credits, day in days if first is not None and day >= first), Decimal(0))
    used, spent = amount_of_stored(found.used), min(spent, MAX_CREDITS)
    return CheckedBalance(balance_id=key, entry_id=found.newest, used=used, day=first, spent=spent)


def _day_drifts(name: str, days: Iterable[Decimal], wanted: int) -> Iterator[str]:
    spent = [stored_amount(credits) for credits in days]
    if sum(spent) != wanted and _FULL not in spent:
        yield f"{name}: its days sum to {_shown(sum(spent))}, its entries to {_shown(wanted)}"


def _column_drifts(name: str, columns: tuple[Decimal, Decimal], wanted: tuple[int, int]) -> Iterator[str]:
    for column, stored, value in zip(("used", "held"), columns, wanted, strict=True):
        if stored_amount(stored) != value:
            yield f"{name}: {column} is {stored:f}, and should be {_shown(value)}"


def _entry_drifts(rows: Iterable[tuple[Any, ...]], service: str, found: _Sums, counts: Counts) -> Iterator[str]:
    for _, number, kind, amount, after, workspace, description in rows:
        counts.entries += 1
        stored = stored_amount(amount)
        found.newest = number
        found.used += stored
        if kind != EntryKind.RESET:
            found.spent += stored
        if description == DESCRIPTION and service == Service.SANDBOX:
            found.charged[workspace] += stored
            counts.metered += stored if number > counts.metered_after else 0
        if found.used != stored_amount(after):
            yield f"entry {number}: the balance after it is {after:f}, and the entries give {_shown(found.used)}"
            found.used = stored_amount(after)


class _Merged:
    """Groups of rows in falling order of their keys, taken by keys in the same order."""

    def __init__(self, groups: Iterator[tuple[int, Iterator[tuple[Any, ...]]]]) -> None:
        self._groups = groups
        self._next = next(groups, None)

    def take(self, key: int) -> Iterator[tuple[Any, ...]]:
        if self._next is not None and self._next[0] == key:
            yield from self._next[1]
            self._next = next(self._groups, None)


def _balances() -> Iterator[tuple[Any, ...]]:
    return _streamed(_balances_with_holds().values_list(*_BALANCE))


def _balances_with_positions() -> Iterator[tuple[Any, ...]]:
    newest = Entry.objects.filter(balance=OuterRef("pk")).order_by("-id").values("id")[:1]
    rows = _balances_with_holds().annotate(newest=Subquery(newest))
    position = (f"checked__{name}" for name in ("entry_id", "used", "day", "spent"))
    return _streamed(rows.values_list(*_BALANCE, "newest", *position))


def _balances_with_holds() -> QuerySet[Balance]:
    holds = Hold.objects.filter(balance=OuterRef("pk")).order_by().values("balance").annotate(sum=Sum("amount"))
    return Balance.objects.annotate(in_holds=Subquery(holds.values("sum"))).order_by("-pk")


def _entries() -> Iterator[tuple[Any, ...]]:
    # The order of their index, backwards.
    return _streamed(Entry.objects.order_by("-balance_id", "id").values_list(*_ENTRY))


def _days() -> Iterator[tuple[Any, ...]]:
    return _streamed(Spending.objects.order_by("-balance_id", "-day").values_list("balance", "credits", "day"))


def _streamed(rows: QuerySet[Any, tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return rows.iterator(chunk_size=CHUNK)


def _shown(stored: int) -> str:
    return f"{amount_of_stored(stored):f}"
