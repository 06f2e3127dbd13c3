"""Whether balances, the ledger, holds and the days' spending agree: each is computed from the others and compared.

The ledger is read once, in the order of its index; what is held in memory is what one balance has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.utils import timezone

from credits.amounts import amount_of_stored, stored_amount
from credits.metered_charges import DESCRIPTION
from credits.models import Balance, Entry, EntryKind, Hold, LedgerCheck, Service, Spending

CHUNK = 2000
SENTENCES = 20  # of a result that are kept
# A nightly check that has not finished after so long has died.
LONGEST = timedelta(hours=6)
# (namespace id, credits by workspace): what else is to be compared with the metered charges of a namespace.
CompareCharges = Callable[[str, Mapping[str, int]], Iterable[str]]


@dataclass(slots=True)
class Counts:
    """What a check has read. `metered`: the sum of the metered charges after the entry `metered_after`, as stored."""

    entries: int = 0
    records: int = 0
    balances: int = 0
    metered_after: int = 0
    metered: int = 0


@dataclass(slots=True)
class _Sums:
    """Of the entries of one balance, as they are stored."""

    used: int = 0
    spent: int = 0
    charged: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def balance_drifts(counts: Counts, compare: CompareCharges) -> Iterator[str]:
    """A sentence for each balance that is not the sum of its entries and holds, each entry whose balance is wrong, and
    each balance whose days do not add up to its charges and refunds.
    """
    entries = _Merged(groupby(_entries(), key=lambda row: row[0]))
    days = _Merged(groupby(_days(), key=lambda row: row[0]))
    for key, namespace_id, service, used, held, holds in _balances():
        counts.balances += 1
        found, name = _Sums(), f"balance {key} ({service} of {namespace_id})"
        yield from _entry_drifts(entries.take(key), service, found, counts)
        spent = sum(stored_amount(row[1]) for row in days.take(key))
        if spent != found.spent:
            yield f"{name}: its days sum to {_shown(spent)}, its entries to {_shown(found.spent)}"
        for column, stored, wanted in (("used", used, found.used), ("held", held, stored_amount(holds or 0))):
            if stored_amount(stored) != wanted:
                yield f"{name}: {column} is {stored:f}, and should be {_shown(wanted)}"
        if service == Service.SANDBOX:
            yield from compare(namespace_id, found.charged)


def _entry_drifts(rows: Iterable[tuple[Any, ...]], service: str, found: _Sums, counts: Counts) -> Iterator[str]:
    for _, number, kind, amount, after, workspace, description in rows:
        counts.entries += 1
        stored = stored_amount(amount)
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
    holds = Hold.objects.filter(balance=OuterRef("pk")).order_by().values("balance").annotate(sum=Sum("amount"))
    rows = Balance.objects.annotate(in_holds=Subquery(holds.values("sum"))).order_by("-pk")
    return _streamed(rows.values_list("pk", "namespace_id", "service", "used", "held", "in_holds"))


def _entries() -> Iterator[tuple[Any, ...]]:
    # The order of their index, backwards.
    rows = Entry.objects.order_by("-balance_id", "id")
    return _streamed(
        rows.values_list("balance", "id", "kind", "amount", "balance_after", "workspace_id", "description")
    )


def _days() -> Iterator[tuple[Any, ...]]:
    return _streamed(Spending.objects.order_by("-balance_id", "-day").values_list("balance", "credits"))


def _streamed(rows: QuerySet[Any, tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return rows.iterator(chunk_size=CHUNK)


def _shown(stored: int) -> str:
    return f"{amount_of_stored(stored):f}"


def check_begin() -> LedgerCheck:
    """The row of a check by hand."""
    return LedgerCheck.objects.create()


def check_begin_nightly() -> LedgerCheck | None:
    """The row of this night's check, made or taken over from a process that died; None where it was made already."""
    now = timezone.now()
    try:
        with transaction.atomic():
            return LedgerCheck.objects.create(night=now.date(), started_at=now)
    except IntegrityError:
        died = LedgerCheck.objects.filter(night=now.date(), finished_at=None, started_at__lt=now - LONGEST)
        taken = died.update(started_at=now)
        return LedgerCheck.objects.get(night=now.date()) if taken else None


def check_end(check: LedgerCheck, counts: Counts, sentences: list[str], differences: int | None) -> None:
    """Store what a check found. `differences` None: it failed, and the sentence is the error."""
    now = timezone.now()
    LedgerCheck.objects.filter(pk=check.pk).update(
        finished_at=now,
        seconds=(now - check.started_at).total_seconds(),
        entries=counts.entries,
        records=counts.records,
        balances=counts.balances,
        differences=differences,
        sentences=sentences[:SENTENCES],
    )
