"""Holds (wire contract, section 7): credits are set aside, then settled with the real cost or given back.

A hold is found by its balance and its key: a caller's key never meets that of another namespace or service.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import DataError, transaction
from django.utils import timezone

from common.errors import Conflict, DomainError
from credits import statements, zones
from credits.amounts import MAX_CREDITS
from credits.entries import (
    NO_PURPOSE,
    Purpose,
    apply_default,
    balance_full,
    entry_new,
    entry_of_key,
    lock_balance,
    require_amount,
)
from credits.errors import quota_exceeded
from credits.models import Balance, Entry, EntryKind, Hold, Service
from credits.selectors import balance_for
from credits.statements import balance_give_back, hold_insert, hold_remove
from namespaces.models import Namespace

logger = logging.getLogger(__name__)

HOLD_FOR = timedelta(minutes=15)
EXPIRE_BATCH = 500


def credits_hold(
    *, namespace: Namespace, service: Service, amount: Decimal, key: str, until: datetime | None = None
) -> Hold:
    """Set credits aside until `until` (default: 15 minutes), if the quota has room for them. Idempotent by key.

    One statement decides under the balance's lock: if many holds arrive at once, no more succeed than there is room
    for. Raise QuotaExceeded if there is no room. Raise Conflict if the key holds another amount, was settled, or no
    column holds the sum. Raise ValueError if `amount` is not an amount. Nothing is held then.
    """
    require_amount(amount)
    wanted = Hold(key=key, amount=amount, expires_at=until or timezone.now() + HOLD_FOR)
    if hold_insert(namespace.pk, service, wanted, hold_entry_key(key)):
        return wanted
    return _hold_again(namespace, service, wanted)


@transaction.atomic
def _hold_again(namespace: Namespace, service: Service, wanted: Hold) -> Hold:
    """Create the balance and its default quota if they were missing, and hold again.

    Otherwise return what the key holds already, or raise the reason why there is no hold. The balance is locked first:
    if the key is used at the same time, even for a whole hold and its settlement, this sees all of that or nothing.
    """
    balance = balance_for_hold(namespace, service)
    if hold_insert(namespace.pk, service, wanted, hold_entry_key(wanted.key)):
        return wanted
    held = Hold.objects.filter(balance=balance, key=wanted.key).first()
    if held is None and entry_of_key(balance, hold_entry_key(wanted.key)) is None:
        raise hold_refused(balance, namespace, wanted.amount)
    if held is None or held.amount != wanted.amount:
        raise Conflict(f"The key {wanted.key} was used for another amount, or is settled already.")
    return held


def balance_for_hold(namespace: Namespace, service: Service) -> Balance:
    """Return the locked balance with the quota that applies; create it if there is none."""
    balance = lock_balance(namespace, service)
    apply_default(balance)
    return balance


def hold_refused(balance: Balance, namespace: Namespace, amount: Decimal) -> DomainError:
    """Return the error of a hold for which a locked balance has no room."""
    if balance.used + balance.held + amount > MAX_CREDITS:
        return balance_full()
    return quota_exceeded(balance, namespace.slug, amount)


def hold_entry_key(key: str) -> str:
    """Return the key of the entry that settles a hold."""
    return f"hold:{key}"


def hold_settle(
    *, namespace: Namespace, service: Service, key: str, amount: Decimal, purpose: Purpose = NO_PURPOSE
) -> Entry | None:
    """Charge the real cost in place of the held amount. Idempotent.

    Return None if the hold was voided or has expired: nothing is charged then. Raise Conflict if no column holds the
    sum: the hold stays, and the log says so. Raise ValueError if `amount` is not an amount.
    """
    require_amount(amount)
    charged = Purpose(hold_entry_key(key), purpose.workspace_id, purpose.description)
    entry = entry_new(EntryKind.CHARGE, amount, charged)
    if statements.hold_settle(namespace.pk, service, key, entry, quietly=True):
        return entry
    try:
        return _settle_and_announce(namespace, service, key, entry)
    except DataError:
        logger.error("no room in the balance of %s: %s credits of the hold %r are not charged", namespace, amount, key)
        raise balance_full() from None


@transaction.atomic
def _settle_and_announce(namespace: Namespace, service: Service, key: str, entry: Entry) -> Entry | None:
    """Settle a hold, or return the entry of a hold that was settled before.

    Raise DataError if no column holds the sum.
    """
    if not statements.hold_settle(namespace.pk, service, key, entry, quietly=False):
        balance = balance_for(namespace.pk, service)
        return None if balance is None else entry_of_key(balance, entry.key)
    settled = entry.balance
    announced = (settled.last_threshold_fired, settled.depleted_fired)
    zones.announce_charges([settled])
    if announced != (settled.last_threshold_fired, settled.depleted_fired):
        settled.save(update_fields=["last_threshold_fired", "depleted_fired"])
    return entry


def hold_void(*, namespace: Namespace, service: Service, key: str) -> bool:
    """Give a hold back. Return False if it does not exist any more."""
    balance = balance_for(namespace.pk, service)
    return balance is not None and _give_back(balance.pk, key)


@transaction.atomic
def _give_back(balance_id: int, key: str, number: int | None = None) -> bool:
    held = hold_remove(balance_id, key, number)
    if held is not None:
        balance_give_back(balance_id, held)
    return held is not None


def holds_expire() -> int:
    """Void one batch of holds whose time is over, and return how many.

    Only the rows that were due are voided. A hold that has used the key again since then stays.
    """
    due = Hold.objects.filter(expires_at__lte=timezone.now()).order_by("expires_at")
    rows = list(due.values_list("balance_id", "key", "pk")[:EXPIRE_BATCH])
    return sum(_give_back(*row) for row in rows)
