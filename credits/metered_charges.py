"""Charges of many workspaces at once, in the caller's transaction.

It writes the same rows as `ledger.credits_charge` would for each, by a fixed number of statements.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple

from django.db.models import Exists, OuterRef

from common.bulk_rows import Row, rows_insert, update_rows
from credits import zones
from credits.amounts import MAX_CREDITS, amount_of_stored, stored_amount
from credits.models import QUOTA_FIELDS, Balance, Entry, EntryKind, QuotaDefault, Service
from credits.statements import add_spending

logger = logging.getLogger(__name__)

DESCRIPTION = "Metered usage."
_FULL = stored_amount(MAX_CREDITS)
_ANNOUNCED = ("last_threshold_fired", "depleted_fired")


class MeteredCharge(NamedTuple):
    """Amount that one workspace used of a namespace's balance, in 1e-8 credits."""

    account_id: str
    namespace_id: str
    workspace_id: str
    amount: int


def write_charges(charges: Sequence[MeteredCharge], service: Service, now: datetime) -> None:
    """Write an entry for each charge, the balances, the day's spending, and what is announced.

    Balances are locked in the order of their ids, so that two passes never wait for each other in a circle. The
    caller's transaction ensures that a charge counts once.
    """
    if not charges:
        return
    balances = _locked_balances(charges, service)
    charges = _with_room(charges, balances)
    _apply_defaults(balances.values(), service)
    blocked = [balance for balance in balances.values() if zones.is_blocked(balance)]
    _write_entries(charges, balances, now)
    _add_spending(charges, balances, now.date())
    _announce(balances.values(), blocked)
    update_rows(Balance, ["used"], [(row.pk, stored_amount(row.used)) for row in balances.values()])


def _locked_balances(charges: Iterable[MeteredCharge], service: Service) -> dict[str, Balance]:
    """Return the locked balances by namespace id, in the order of their ids; create those that are missing.

    `has_default`: the balance has no quota, and a default applies.
    """
    accounts = {charge.namespace_id: charge.account_id for charge in charges}
    defaults = QuotaDefault.objects.filter(service=service, auto_apply=True, account_id=OuterRef("account_id"))
    rows = Balance.objects.filter(service=service, namespace_id__in=accounts).select_for_update(of=("self",))
    rows = rows.annotate(has_default=Exists(defaults)).order_by("pk")
    found: dict[str, Balance] = {row.namespace_id: row for row in rows}
    if missing := accounts.keys() - found.keys():
        new = [Balance(namespace_id=key, account_id=accounts[key], service=service) for key in sorted(missing)]
        Balance.objects.bulk_create(new, ignore_conflicts=True)
        found = {row.namespace_id: row for row in rows.all()}
    return found


def _with_room(charges: Iterable[MeteredCharge], balances: Mapping[str, Balance]) -> Sequence[MeteredCharge]:
    """Return the charges that the balances' columns can hold.

    The limits of prices and quotas keep each balance far from its end. If a balance reaches its end all the same, the
    rest is dropped, with an error in the log: it would stop the charges of all others.
    """
    room = {key: _FULL - stored_amount(balance.used) for key, balance in balances.items()}
    fitting: list[MeteredCharge] = []
    for charge in charges:
        amount = min(charge.amount, room[charge.namespace_id])
        room[charge.namespace_id] -= amount
        if amount < charge.amount:
            logger.error(
                "no room in the balance %s: %s credits of %s are not charged",
                balances[charge.namespace_id], amount_of_stored(charge.amount - amount), charge.workspace_id,
            )  # fmt: skip
        if amount or not charge.amount:
            fitting.append(charge._replace(amount=amount))
    return fitting


def _apply_defaults(balances: Iterable[Balance], service: Service) -> None:
    """Apply default quotas to the instances and the rows."""
    wanting = [row for row in balances if row.quota_limit is None and row.has_default]  # type: ignore[attr-defined]
    if not wanting:
        return
    defaults = QuotaDefault.objects.filter(
        service=service, auto_apply=True, account_id__in={row.account_id for row in wanting}
    )
    templates = {default.account_id: default for default in defaults}
    applied = [row for row in wanting if row.account_id in templates]
    for balance in applied:
        for name in QUOTA_FIELDS:
            setattr(balance, name, getattr(templates[balance.account_id], name))
    Balance.objects.bulk_update(applied, QUOTA_FIELDS)


def _write_entries(charges: Iterable[MeteredCharge], balances: Mapping[str, Balance], now: datetime) -> None:
    """Write the entries in order, and add to the balances' `used`."""
    used = {key: stored_amount(balance.used) for key, balance in balances.items()}
    rows: list[Row] = []
    for charge in charges:
        key = charge.namespace_id
        used[key] += charge.amount
        rows.append((balances[key].pk, charge.amount, used[key], charge.workspace_id))
    same = {"kind": EntryKind.CHARGE, "description": DESCRIPTION, "created_at": now}
    rows_insert(Entry, ("balance_id", "amount", "balance_after", "workspace_id"), rows, same)
    for key, balance in balances.items():
        balance.used = amount_of_stored(used[key])


def _announce(balances: Collection[Balance], blocked_before: Sequence[Balance]) -> None:
    announced = {balance.pk: _announcement(balance) for balance in balances}
    zones.announce_charges(list(balances), blocked_before=blocked_before)
    changed = [balance for balance in balances if announced[balance.pk] != _announcement(balance)]
    if changed:
        Balance.objects.bulk_update(changed, _ANNOUNCED)


def _announcement(balance: Balance) -> tuple[float | None, bool]:
    return balance.last_threshold_fired, balance.depleted_fired


def _add_spending(charges: Sequence[MeteredCharge], balances: Mapping[str, Balance], day: date) -> None:
    """Add to the rows of the day; create those that are missing."""
    sums: dict[int, tuple[int, int]] = {}
    for charge in charges:
        key = balances[charge.namespace_id].pk
        credits, requests = sums.get(key, (0, 0))
        sums[key] = (credits + charge.amount, requests + 1)
    add_spending([(key, day, *sums[key]) for key in sorted(sums)])
