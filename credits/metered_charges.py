"""Charges of many workspaces at once, in the caller's transaction: the same rows as `ledger.credits_charge` writes for
each, by a fixed number of statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from django.db import connection

from credits import zones
from credits.amounts import stored_amount
from credits.models import QUOTA_FIELDS, Balance, Entry, EntryKind, QuotaDefault, Service, Spending

_ROWS = 200  # of one INSERT
DESCRIPTION = "Metered usage."
_CHANGED = ("used", *QUOTA_FIELDS, "last_threshold_fired", "depleted_fired")


@dataclass(frozen=True, slots=True)
class MeteredCharge:
    """What one workspace used of a namespace's balance, in credits."""

    account_id: str
    namespace_id: str
    workspace_id: str
    amount: Decimal


def charges_write(charges: Sequence[MeteredCharge], service: Service, now: datetime) -> None:
    """Write an entry for each charge, the balances, the day's spending, and what is announced.

    Balances are locked in the order of their ids, so that two passes never wait for each other in a circle. The
    caller's transaction makes it count once.
    """
    balances = _locked_balances(charges, service)
    _apply_defaults([balance for balance in balances.values() if balance.quota_limit is None], service)
    Entry.objects.bulk_create(_entries(charges, balances, now))
    _add_spending(charges, balances, now.date())
    zones.announce_charges(list(balances.values()))
    Balance.objects.bulk_update(balances.values(), _CHANGED)


def _locked_balances(charges: Sequence[MeteredCharge], service: Service) -> dict[str, Balance]:
    """By namespace id; made where there is none."""
    accounts = {charge.namespace_id: charge.account_id for charge in charges}
    rows = Balance.objects.filter(service=service, namespace_id__in=accounts).select_for_update().order_by("pk")
    found = {row.namespace_id: row for row in rows}
    if missing := accounts.keys() - found.keys():
        new = [Balance(namespace_id=key, account_id=accounts[key], service=service) for key in sorted(missing)]
        Balance.objects.bulk_create(new, ignore_conflicts=True)
        found = {row.namespace_id: row for row in rows.all()}
    return found


def _apply_defaults(balances: Sequence[Balance], service: Service) -> None:
    accounts = {balance.account_id for balance in balances}
    if not accounts:
        return
    defaults = QuotaDefault.objects.filter(service=service, auto_apply=True, account_id__in=accounts)
    templates = {default.account_id: default for default in defaults}
    for balance in balances:
        if (template := templates.get(balance.account_id)) is not None:
            for name in QUOTA_FIELDS:
                setattr(balance, name, getattr(template, name))


def _entries(charges: Sequence[MeteredCharge], balances: Mapping[str, Balance], now: datetime) -> list[Entry]:
    """The entries, in order; adds to the balances' `used`."""
    entries = []
    for charge in charges:
        balance = balances[charge.namespace_id]
        balance.used += charge.amount
        entries.append(
            Entry(
                balance=balance,
                kind=EntryKind.CHARGE,
                amount=charge.amount,
                balance_after=balance.used,
                workspace_id=charge.workspace_id,
                description=DESCRIPTION,
                created_at=now,
            )
        )
    return entries


def _add_spending(charges: Sequence[MeteredCharge], balances: Mapping[str, Balance], day: date) -> None:
    """Add to the rows of the day; those that are missing are made."""
    sums: dict[int, list[int]] = {}
    for charge in charges:
        each = sums.setdefault(balances[charge.namespace_id].pk, [0, 0])
        each[0] += stored_amount(charge.amount)
        each[1] += 1
    rows: list[tuple[int | date, ...]] = [(key, day, *each) for key, each in sorted(sums.items())]
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            cursor.execute(_sql_spending(len(some)), [value for row in some for value in row])


def _sql_spending(count: int) -> str:
    table = Spending._meta.db_table
    values = ", ".join(["(%s, %s, %s, %s)"] * count)
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in ("credits", "requests"))
    return (
        f"INSERT INTO {table} (balance_id, day, credits, requests) VALUES {values}"  # noqa: S608
        f" ON CONFLICT (balance_id, day) DO UPDATE SET {added}"
    )
