"""Entries of one balance, written while its row is locked. `ledger` and `holds` share them.

`used` is always the sum of the entries. Each entry has the balance after it, and adds to the day's spending.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal

from common.errors import Conflict
from credits.amounts import MAX_CREDITS, stored_amount
from credits.models import QUOTA_FIELDS, Balance, Entry, EntryKind, QuotaDefault
from credits.statements import add_spending
from namespaces.models import Namespace


@dataclass(frozen=True, slots=True)
class Purpose:
    """Reason of an entry. `key`: a second charge of the same balance with the same key changes nothing."""

    key: str | None = None
    workspace_id: str = ""
    description: str = ""


NO_PURPOSE = Purpose()


def balance_of(namespace: Namespace, service: str) -> Balance:
    """Return the balance of a service; create it if there is none. It is not locked."""
    return Balance.objects.get_or_create(
        namespace_id=namespace.pk, service=service, defaults={"account_id": namespace.account_id}
    )[0]


def lock_balance(namespace: Namespace, service: str) -> Balance:
    """Return the current row, locked to the end of the transaction; create it if there is none."""
    made = balance_of(namespace, service)
    balance: Balance = Balance.objects.select_for_update().get(pk=made.pk)
    return balance


def apply_default(balance: Balance) -> None:
    """Give a balance the account's default quota if it has no quota and a default applies. Called before credits are
    spent.

    Changes the instance and the row, which is locked.
    """
    if balance.quota_limit is not None:
        return
    default = QuotaDefault.objects.filter(
        account_id=balance.account_id, service=balance.service, auto_apply=True
    ).first()
    if default is None:
        return
    for name in QUOTA_FIELDS:
        setattr(balance, name, getattr(default, name))
    balance.save(update_fields=QUOTA_FIELDS)


def entry_of_key(balance: Balance, key: str | None) -> Entry | None:
    """Return the entry of a balance that was written for a key; None without a key."""
    return Entry.objects.filter(balance=balance, key=key).first() if key else None


def entry_new(kind: EntryKind, amount: Decimal, purpose: Purpose) -> Entry:
    """Return an entry that has no balance and is not written yet."""
    return Entry(
        kind=kind,
        amount=amount,
        workspace_id=purpose.workspace_id,
        description=purpose.description[:200],
        key=purpose.key,
    )


def entry_insert(balance: Balance, kind: EntryKind, amount: Decimal, purpose: Purpose) -> Entry:
    """Write an entry after `used` was changed, and add to the day's spending."""
    entry = entry_new(kind, amount, purpose)
    entry.balance, entry.balance_after = balance, balance.used
    entry.save(force_insert=True)
    if kind != EntryKind.RESET:
        _add_spending(entry)
    return entry


def _add_spending(entry: Entry) -> None:
    day = entry.created_at.astimezone(UTC).date()
    requests = 1 if entry.kind == EntryKind.CHARGE else 0
    add_spending([(entry.balance_id, day, stored_amount(entry.amount), requests)])


def require_amount(amount: Decimal) -> None:
    """Raise ValueError for a negative amount: a negative charge would be a refund that no entry shows as one."""
    if stored_amount(amount) < 0:
        raise ValueError(f"{amount} is negative")


def require_column_holds(credits: Decimal) -> None:
    """Raise Conflict if a balance's columns cannot hold this amount."""
    if credits > MAX_CREDITS:
        raise balance_full()


def balance_full() -> Conflict:
    """Return the error of a balance without room for an amount."""
    return Conflict(f"A balance holds at most {MAX_CREDITS:f} credits.")
