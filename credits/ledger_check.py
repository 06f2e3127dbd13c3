"""Whether balances, the ledger, holds and the days' spending agree: each is computed from the others and compared."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from django.db.models import Sum

from credits.models import Balance, Entry, EntryKind, Hold, Spending


def balance_drifts() -> Iterator[str]:
    """A sentence for each balance that is not the sum of its entries and holds, and each entry whose balance is wrong.

    Reads the ledger once, in order. Run it while nothing is charged, or in one transaction.
    """
    held = dict(Hold.objects.values_list("balance").annotate(sum=Sum("amount")).order_by())
    sums: dict[int, Decimal] = {}
    for number, key, amount, after in _entries():
        sums[key] = sums.get(key, Decimal(0)) + amount
        if sums[key] != after:
            yield f"entry {number}: the balance after it is {after:f}, and the entries give {sums[key]:f}"
            sums[key] = after
    for balance in Balance.objects.order_by("pk").iterator():
        for name, expected in (("used", sums.get(balance.pk)), ("held", held.get(balance.pk))):
            if getattr(balance, name) != (expected or 0):
                found = getattr(balance, name)
                yield f"balance {balance.pk} ({balance}): {name} is {found:f}, and should be {expected or Decimal(0):f}"


def spending_drifts() -> Iterator[str]:
    """A sentence for each balance whose days do not add up to its charges and refunds. Two queries."""
    entries = Entry.objects.exclude(kind=EntryKind.RESET).order_by().values_list("balance").annotate(sum=Sum("amount"))
    expected = dict(entries)
    days = dict(Spending.objects.order_by().values_list("balance").annotate(sum=Sum("credits")))
    for key in sorted(expected.keys() | days.keys()):
        if days.get(key, 0) != expected.get(key, 0):
            yield f"balance {key}: its days sum to {days.get(key, 0)}, its entries to {expected.get(key, 0)}"


def _entries() -> Iterator[tuple[int, int, Decimal, Decimal]]:
    rows = Entry.objects.order_by("balance", "id").values_list("id", "balance", "amount", "balance_after")
    return rows.iterator(chunk_size=5000)
