"""Charges, refunds and quotas (wire contract, section 7).

Only this module, `holds` and `metered_charges` write balances and the ledger. Every change is one transaction that
locks the balance's row, writes one entry with the balance after it, and announces what it passes.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import transaction

from common.errors import Conflict, InvalidState, NotFound
from credits import zones
from credits.entries import (
    Purpose,
    apply_default,
    entry_insert,
    entry_of_key,
    lock_balance,
    require_amount,
    require_column_holds,
)
from credits.errors import MAX_SERVICES, ServiceLimitExceeded
from credits.models import Balance, Entry, EntryKind
from namespaces.models import Namespace


@transaction.atomic
def credits_charge(*, namespace: Namespace, service: str, amount: Decimal, purpose: Purpose) -> Entry:
    """Charge what was used, even beyond the quota. Idempotent by the purpose's key.

    Raise Conflict if the key charged another amount, or no column holds the sum. Raise ValueError if `amount` is not an
    amount. Nothing has changed then.
    """
    require_amount(amount)
    balance = lock_balance(namespace, service)
    charged = entry_of_key(balance, purpose.key)
    if charged is not None:
        return _same_amount(charged, amount)
    apply_default(balance)
    return _write_entry(balance, EntryKind.CHARGE, amount, purpose)


def _same_amount(entry: Entry, amount: Decimal) -> Entry:
    if entry.amount != amount:
        raise Conflict(f"{entry.key} was charged with {entry.amount:f} credits already.")
    return entry


@transaction.atomic
def credits_refund(*, namespace: Namespace, service: str, amount: Decimal, purpose: Purpose) -> Entry:
    """Give credits back that were charged since the last reset. Idempotent by key.

    Raise Conflict if `amount` is more than what is used, or the key refunded another amount. Raise ValueError if
    `amount` is not an amount. Nothing has changed then.
    """
    require_amount(amount)
    balance = lock_balance(namespace, service)
    refunded = entry_of_key(balance, purpose.key)
    if refunded is not None:
        return _same_amount(refunded, -amount)
    if amount > balance.used:
        raise Conflict(f"Only {balance.used:f} credits are used; {amount:f} cannot be given back.")
    return _write_entry(balance, EntryKind.REFUND, -amount, purpose)


def _write_entry(balance: Balance, kind: EntryKind, amount: Decimal, purpose: Purpose, **changes: Any) -> Entry:
    """Write the entry and the new `used` of a locked balance, and announce what they pass.

    `changes`: further columns of the balance's row.
    """
    require_column_holds(balance.used + amount)
    balance.used += amount
    for name, value in changes.items():
        setattr(balance, name, value)
    entry = entry_insert(balance, kind, amount, purpose)
    if kind == EntryKind.CHARGE:
        zones.announce_charges([balance])
    else:
        zones.apply_blocks([balance])
    balance.save()
    return entry


@transaction.atomic
def quota_set(
    *,
    namespace: Namespace,
    service: str,
    limit: Decimal,
    overdraft: Decimal,
    action: str,
    thresholds: list[float],
) -> Balance:
    """Set a quota and re-arm its thresholds.

    Used credits stay: a threshold that they pass fires with the next charge. A suspension by this quota is lifted if
    the quota has room now, and the namespace is suspended if it has none. Raise RateLimited if such changes were
    announced very often in the last minute. Raise ServiceLimitExceeded.
    """
    _require_few_services(namespace, service)
    balance = lock_balance(namespace, service)
    balance.quota_limit, balance.overdraft, balance.on_overdraft_action = limit, overdraft, action
    balance.notification_thresholds = sorted(set(thresholds))
    balance.last_threshold_fired, balance.depleted_fired = None, False
    zones.apply_blocks([balance], by_request=True)
    balance.save()
    return balance


def _require_few_services(namespace: Namespace, service: str) -> None:
    """Raise ServiceLimitExceeded if the namespace has quotas of the maximal number of services.

    There is no lock: simultaneous requests may make a few more.
    """
    known = set(Balance.objects.filter(namespace_id=namespace.pk).values_list("service", flat=True))
    if service not in known and len(known) >= MAX_SERVICES:
        raise ServiceLimitExceeded(details={"current": len(known), "max": MAX_SERVICES})


@transaction.atomic
def quota_raise(*, namespace: Namespace, service: str, limit: Decimal) -> Balance:
    """Set a higher limit as `quota_set` does; the other columns stay.

    Raise InvalidState if there is no quota, or the quota is not lower than `limit`.
    """
    balance = lock_balance(namespace, service)
    if balance.quota_limit is None:
        raise InvalidState("There is no quota: nothing is refused.")
    if limit <= balance.quota_limit:
        raise InvalidState(f"The quota is {balance.quota_limit:f} credits already.")
    return quota_set(
        namespace=namespace,
        service=service,
        limit=limit,
        overdraft=balance.overdraft,
        action=balance.on_overdraft_action,
        thresholds=balance.notification_thresholds,
    )


@transaction.atomic
def quota_reset(*, namespace: Namespace, service: str, actor: str, quota_required: bool = False) -> Balance:
    """Set the used credits to zero, with an entry, and re-arm the thresholds. Lifts a suspension by this quota.

    Held credits stay held. Idempotent: if nothing is used no entry is written. With `quota_required`, raise NotFound if
    no quota is set; nothing has changed then.
    """
    balance = lock_balance(namespace, service)
    if quota_required and balance.quota_limit is None:
        raise NotFound(f"There is no quota for {service}.")
    rearmed = {"last_threshold_fired": None, "depleted_fired": False}
    if balance.used:
        _write_entry(balance, EntryKind.RESET, -balance.used, Purpose(description=f"Reset by {actor}."), **rearmed)
    else:
        Balance.objects.filter(pk=balance.pk).update(**rearmed)
        balance.last_threshold_fired, balance.depleted_fired = None, False
        zones.apply_blocks([balance])  # staff may have suspended the namespace by hand, as the quota would
    return balance
