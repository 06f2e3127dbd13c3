"""Spending ahead (wire contract, section 7): credits are held, then settled with what it really cost, or given back.

A hold is found by its balance and its key, so that no caller's key meets that of another namespace or service.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import IntegrityError, transaction
from django.db.models import F, Q, Value
from django.utils import timezone

from common.errors import Conflict, QuotaExceeded
from credits import zones
from credits.amounts import CreditsField
from credits.entries import (
    NO_PURPOSE,
    Purpose,
    balance_full,
    balance_lock,
    default_apply,
    entry_insert,
    entry_new,
    entry_of_key,
    require_amount,
    require_column_holds,
)
from credits.errors import quota_exceeded
from credits.models import Balance, Entry, EntryKind, Hold, Service
from credits.selectors import balance_for
from credits.statements import balance_give_back, balance_settle, hold_insert, hold_remove, hold_settle_quietly
from namespaces.models import Namespace

logger = logging.getLogger(__name__)

HOLD_FOR = timedelta(minutes=15)
EXPIRE_BATCH = 500


def credits_hold(
    *, namespace: Namespace, service: Service, amount: Decimal, key: str, until: datetime | None = None
) -> Hold:
    """Set credits aside until `until` (default: 15 minutes), if the quota has room for them. Idempotent by key.

    One conditional UPDATE decides, so that of many at once no more succeed than there is room for. Raises
    QuotaExceeded; Conflict where the key holds another amount, or was settled, or no column holds the sum; ValueError
    for what is no amount. Nothing is held then.
    """
    require_amount(amount)
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
    balance = balance_lock(namespace, service)
    held = Hold.objects.filter(balance=balance, key=wanted.key).first()
    if held is not None or entry_of_key(balance, hold_entry_key(wanted.key)) is not None:
        if held is None or held.amount != wanted.amount:
            raise Conflict(f"{wanted.key} was used for another amount, or is settled.")
        return held
    default_apply(balance)
    require_column_holds(balance.used + balance.held + wanted.amount)
    _take_room(balance, wanted.amount, namespace.slug)
    return Hold.objects.create(key=wanted.key, balance=balance, amount=wanted.amount, expires_at=wanted.expires_at)


def _take_room(balance: Balance, amount: Decimal, namespace_slug: str) -> None:
    wanted = F("used") + F("held") + Value(amount, CreditsField())
    has_room = Q(quota_limit=None) | Q(quota_limit__gte=wanted - F("overdraft"))
    held = F("held") + Value(amount, CreditsField())
    if not Balance.objects.filter(has_room, pk=balance.pk).update(held=held):
        balance.refresh_from_db()
        raise quota_exceeded(balance, namespace_slug, amount)


def hold_entry_key(key: str) -> str:
    """The key of the entry that a hold is settled with."""
    return f"hold:{key}"


def hold_settle(
    *, namespace: Namespace, service: Service, key: str, amount: Decimal, purpose: Purpose = NO_PURPOSE
) -> Entry | None:
    """Charge what it really cost, in place of what was held. Idempotent.

    None where it was voided or has expired: nothing is charged then. Raises Conflict where no column holds the sum: the
    hold stays, and the log says so; ValueError for what is no amount.
    """
    require_amount(amount)
    charged = Purpose(hold_entry_key(key), purpose.workspace_id, purpose.description)
    entry = entry_new(EntryKind.CHARGE, amount, charged)
    if hold_settle_quietly(namespace.pk, service, key, entry):
        return entry
    balance = balance_for(namespace.pk, service)
    try:
        return None if balance is None else _settle(balance, key, amount, charged)
    except Conflict:
        logger.error("no room in the balance %s: %s credits of the hold %r are not charged", balance, amount, key)
        raise


@transaction.atomic
def _settle(balance: Balance, key: str, amount: Decimal, charged: Purpose) -> Entry | None:
    """With whatever it announces. The balance is not locked."""
    held = hold_remove(balance.pk, key)
    if held is None:
        return entry_of_key(balance, charged.key)
    settled = balance_settle(balance.pk, amount, held)
    if settled is None:
        raise balance_full()
    entry = entry_insert(settled, EntryKind.CHARGE, amount, charged)
    announced = (settled.last_threshold_fired, settled.depleted_fired)
    zones.announce_charges([settled])
    if announced != (settled.last_threshold_fired, settled.depleted_fired):
        settled.save(update_fields=["last_threshold_fired", "depleted_fired"])
    return entry


def hold_void(*, namespace: Namespace, service: Service, key: str) -> bool:
    """Give a hold back; False where there is none any more."""
    balance = balance_for(namespace.pk, service)
    return balance is not None and _give_back(balance.pk, key)


@transaction.atomic
def _give_back(balance_id: int, key: str, number: int | None = None) -> bool:
    held = hold_remove(balance_id, key, number)
    if held is not None:
        balance_give_back(balance_id, held)
    return held is not None


def holds_expire() -> int:
    """Void the holds whose time is over, a batch at a time. Returns how many.

    Each row that was due, and none whose key was used again since.
    """
    due = Hold.objects.filter(expires_at__lte=timezone.now()).order_by("expires_at")
    rows = list(due.values_list("balance_id", "key", "pk")[:EXPIRE_BATCH])
    return sum(_give_back(*row) for row in rows)
