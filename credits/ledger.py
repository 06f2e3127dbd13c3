"""The only writer of balances, the ledger and holds (wire contract, section 7).

Every change is one transaction that locks the balance's row, writes one entry with the balance after it, and announces
what it passes. `used` is always the sum of the entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q, Value
from django.utils import timezone

from common.errors import Conflict, QuotaExceeded
from credits import zones
from credits.amounts import MAX_CREDITS, CreditsField, stored_amount
from credits.errors import quota_exceeded
from credits.models import QUOTA_FIELDS, Balance, Entry, EntryKind, Hold, QuotaDefault, Service
from credits.statements import (
    balance_give_back,
    balance_settle,
    hold_insert,
    hold_remove,
    hold_settle_quietly,
    spending_add,
)
from namespaces.models import Namespace

HOLD_FOR = timedelta(minutes=15)
EXPIRE_BATCH = 500


@dataclass(frozen=True, slots=True)
class Purpose:
    """What an entry is for. `key`: a second charge with the same key changes nothing."""

    key: str | None = None
    workspace_id: str = ""
    description: str = ""


def balance_of(namespace: Namespace, service: Service) -> Balance:
    """The balance of a service, made where there is none; not locked."""
    return Balance.objects.get_or_create(
        namespace_id=namespace.pk, service=service, defaults={"account_id": namespace.account_id}
    )[0]


@transaction.atomic
def credits_charge(*, namespace: Namespace, service: Service, amount: Decimal, purpose: Purpose) -> Entry:
    """Charge what was used; also beyond the quota, as it has been used. Idempotent by the purpose's key.

    Raises Conflict where the key charged another amount, or no column holds the sum; ValueError for what is no amount.
    Nothing has changed then.
    """
    _require_amount(amount)
    balance = _locked_balance(namespace, service)
    charged = Entry.objects.filter(key=purpose.key).first() if purpose.key else None
    if charged is not None:
        return _same_amount(charged, amount)
    _apply_default(balance)
    return _write_entry(balance, EntryKind.CHARGE, amount, purpose)


def _require_amount(amount: Decimal) -> None:
    """A negative charge would be a refund that no entry shows as one."""
    if stored_amount(amount) < 0:
        raise ValueError(f"{amount} is negative")


def _same_amount(entry: Entry, amount: Decimal) -> Entry:
    if entry.amount != amount:
        raise Conflict(f"{entry.key} was charged with {entry.amount:f} credits already.")
    return entry


@transaction.atomic
def credits_refund(*, namespace: Namespace, service: Service, amount: Decimal, purpose: Purpose) -> Entry:
    """Give credits back that were charged since the last reset. Idempotent by key.

    Raises Conflict where more would be given back than is used, or the key refunded another amount; ValueError for what
    is no amount. Nothing has changed then.
    """
    _require_amount(amount)
    balance = _locked_balance(namespace, service)
    refunded = Entry.objects.filter(key=purpose.key).first() if purpose.key else None
    if refunded is not None:
        return _same_amount(refunded, -amount)
    if amount > balance.used:
        raise Conflict(f"Only {balance.used:f} credits are used; {amount:f} cannot be given back.")
    return _write_entry(balance, EntryKind.REFUND, -amount, purpose)


def _locked_balance(namespace: Namespace, service: Service) -> Balance:
    """The row as it is now, locked."""
    made = balance_of(namespace, service)
    balance: Balance = Balance.objects.select_for_update().get(pk=made.pk)
    return balance


def _apply_default(balance: Balance) -> None:
    """The account's default quota, before something is spent, where the balance has none and one applies.

    On the instance and the row, which is locked.
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


def _write_entry(balance: Balance, kind: EntryKind, amount: Decimal, purpose: Purpose, **changes: Any) -> Entry:
    """The entry, the new `used` and what it announces, of a locked balance. `changes`: further columns of its row."""
    _require_column_holds(balance.used + amount)
    balance.used += amount
    for name, value in changes.items():
        setattr(balance, name, value)
    entry = _insert_entry(balance, kind, amount, purpose)
    if kind == EntryKind.CHARGE:
        zones.announce_charges([balance])
    else:
        zones.apply_blocks([balance])
    balance.save()
    return entry


def _insert_entry(balance: Balance, kind: EntryKind, amount: Decimal, purpose: Purpose) -> Entry:
    """After `used` was changed; with the day's spending."""
    entry = _new_entry(kind, amount, purpose)
    entry.balance, entry.balance_after = balance, balance.used
    entry.save(force_insert=True)
    if kind != EntryKind.RESET:
        _add_spending(entry)
    return entry


def _new_entry(kind: EntryKind, amount: Decimal, purpose: Purpose) -> Entry:
    return Entry(
        kind=kind,
        amount=amount,
        workspace_id=purpose.workspace_id,
        description=purpose.description[:200],
        key=purpose.key,
    )


def _require_column_holds(credits: Decimal) -> None:
    if credits > MAX_CREDITS:
        raise Conflict(f"A balance holds at most {MAX_CREDITS:f} credits.")


def _add_spending(entry: Entry) -> None:
    day = entry.created_at.astimezone(UTC).date()
    requests = 1 if entry.kind == EntryKind.CHARGE else 0
    spending_add([(entry.balance_id, day, stored_amount(entry.amount), requests)])


@transaction.atomic
def quota_set(
    *,
    namespace: Namespace,
    service: Service,
    limit: Decimal,
    overdraft: Decimal,
    action: str,
    thresholds: list[float],
) -> Balance:
    """Set a quota and re-arm its thresholds; what is used stays, and a threshold that it passes fires with the next
    charge. Lifts a suspension by this quota where it has room now, and suspends where it has none.
    """
    balance = _locked_balance(namespace, service)
    balance.quota_limit, balance.overdraft, balance.on_overdraft_action = limit, overdraft, action
    balance.notification_thresholds = sorted(set(thresholds))
    balance.last_threshold_fired, balance.depleted_fired = None, False
    zones.apply_blocks([balance])
    balance.save()
    return balance


@transaction.atomic
def quota_reset(*, namespace: Namespace, service: Service, actor: str) -> Balance:
    """Return what is used to zero, with an entry, and re-arm the thresholds. Lifts a suspension by this quota.

    What is held stays held. Idempotent: with nothing used no entry is written.
    """
    balance = _locked_balance(namespace, service)
    rearmed = {"last_threshold_fired": None, "depleted_fired": False}
    if balance.used:
        _write_entry(balance, EntryKind.RESET, -balance.used, Purpose(description=f"Reset by {actor}."), **rearmed)
    else:
        Balance.objects.filter(pk=balance.pk).update(**rearmed)
        balance.last_threshold_fired, balance.depleted_fired = None, False
        zones.apply_blocks([balance])  # staff may have suspended the namespace in the quota's name
    return balance


def credits_hold(
    *, namespace: Namespace, service: Service, amount: Decimal, key: str, until: datetime | None = None
) -> Hold:
    """Set credits aside until `until` (default: 15 minutes), if the quota has room for them. Idempotent by key.

    One conditional UPDATE decides, so that of many at once no more succeed than there is room for. Raises
    QuotaExceeded; Conflict where the key holds another amount, or was settled, or no column holds the sum; ValueError
    for what is no amount. Nothing is held then.
    """
    _require_amount(amount)
    wanted = Hold(key=key, amount=amount, expires_at=until or timezone.now() + HOLD_FOR)
    try:
        if hold_insert(namespace.pk, service, wanted, hold_entry_key(key)):
            return wanted
        return _hold_once(namespace, service, wanted)
    except (IntegrityError, QuotaExceeded):
        # Another request with the key may have been first, with the room that this one missed; nothing of this one is
        # left.
        return _hold_once(namespace, service, wanted)


@transaction.atomic
def _hold_once(namespace: Namespace, service: Service, wanted: Hold) -> Hold:
    """Whatever the key, the quota and the room are. The balance is locked first: of what a key is used for at the same
    time, also a whole hold and its settlement, this sees all or nothing.
    """
    balance = _locked_balance(namespace, service)
    held = Hold.objects.filter(key=wanted.key).first()
    if held is not None or Entry.objects.filter(key=hold_entry_key(wanted.key)).exists():
        if held is None or held.amount != wanted.amount:
            raise Conflict(f"{wanted.key} was used for another amount, or is settled.")
        return held
    _apply_default(balance)
    _require_column_holds(balance.used + balance.held + wanted.amount)
    _take_room(balance, wanted.amount, namespace.slug)
    return Hold.objects.create(key=wanted.key, balance=balance, amount=wanted.amount, expires_at=wanted.expires_at)


def _take_room(balance: Balance, amount: Decimal, namespace_slug: str) -> None:
    wanted = F("used") + F("held") + Value(amount, CreditsField())
    has_room = Q(quota_limit=None) | Q(quota_limit__gte=wanted - F("overdraft"))
    held = F("held") + Value(amount, CreditsField())
    if not Balance.objects.filter(has_room, pk=balance.pk).update(held=held):
        balance.refresh_from_db()
        raise quota_exceeded(balance, namespace_slug)


def hold_entry_key(key: str) -> str:
    """The key of the entry that a hold is settled with."""
    return f"hold:{key}"


def hold_settle(*, key: str, amount: Decimal, purpose: Purpose = Purpose()) -> Entry | None:
    """Charge what it really cost, in place of what was held. Idempotent.

    None where it was voided or has expired: nothing is charged then. Raises ValueError for what is no amount.
    """
    _require_amount(amount)
    charged = Purpose(hold_entry_key(key), purpose.workspace_id, purpose.description)
    entry = _new_entry(EntryKind.CHARGE, amount, charged)
    return entry if hold_settle_quietly(key, entry) else _settle(key, amount, charged)


@transaction.atomic
def _settle(key: str, amount: Decimal, charged: Purpose) -> Entry | None:
    """With whatever it announces."""
    removed = hold_remove(key)
    if removed is None:
        return Entry.objects.filter(key=charged.key).first()
    balance_id, held = removed
    balance = balance_settle(balance_id, amount, held)
    _require_column_holds(balance.used)
    entry = _insert_entry(balance, EntryKind.CHARGE, amount, charged)
    announced = (balance.last_threshold_fired, balance.depleted_fired)
    zones.announce_charges([balance])
    if announced != (balance.last_threshold_fired, balance.depleted_fired):
        balance.save(update_fields=["last_threshold_fired", "depleted_fired"])
    return entry


def hold_void(*, key: str) -> bool:
    """Give a hold back; False where there is none any more."""
    return _give_back(key)


@transaction.atomic
def _give_back(key: str, number: int | None = None) -> bool:
    removed = hold_remove(key, number)
    if removed is not None:
        balance_give_back(*removed)
    return removed is not None


def holds_expire() -> int:
    """Void the holds whose time is over, a batch at a time. Returns how many.

    Each row that was due, and none whose key was used again since.
    """
    due = Hold.objects.filter(expires_at__lte=timezone.now()).order_by("expires_at")
    return sum(_give_back(key, number) for key, number in list(due.values_list("key", "pk")[:EXPIRE_BATCH]))
