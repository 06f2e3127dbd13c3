"""Statements on rows that many requests change at once.

Each decides, writes and reads in one statement, so that a row is locked as briefly as possible. Only `entries`, `holds`
and `metered_charges` call them. Locks are taken in one order: the hold, then its balance.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date
from decimal import Decimal
from typing import Any

from django.db import connection
from django.utils import timezone

from credits.amounts import MAX_CREDITS, amount_of_stored, stored_amount
from credits.models import Balance, Entry, Hold, Service, Spending

BALANCE, HOLD = Balance._meta.db_table, Hold._meta.db_table
_ROWS = 200  # in one INSERT

# See `hold_functions`.
_HOLD = "SELECT * FROM credits_hold_take(%s, %s, %s, %s, %s, %s, %s)"
_SETTLE = "SELECT * FROM credits_hold_settle(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_GIVE_BACK = f"UPDATE {BALANCE} SET held = held - %s WHERE id = %s"  # noqa: S608
_REMOVE_HOLD = f'DELETE FROM {HOLD} WHERE balance_id = %s AND "key" = %s RETURNING amount'  # noqa: S608
_REMOVE_HOLD_ROW = f'DELETE FROM {HOLD} WHERE balance_id = %s AND "key" = %s AND id = %s RETURNING amount'  # noqa: S608


def hold_insert(namespace_id: str, service: Service, hold: Hold, entry_key: str) -> bool:
    """Write a hold if there is room and neither key was used; `hold` gets its balance and its id.

    Return False if nothing has changed, which has many possible reasons.
    """
    hold.created_at = timezone.now()
    keys = [hold.key, entry_key, hold.expires_at, hold.created_at]
    found = _fetched(_HOLD, [namespace_id, service, stored_amount(hold.amount), *keys])
    if found is not None:
        hold.balance_id, hold.pk = found
        hold._state.adding = False
    return found is not None


def hold_settle(namespace_id: str, service: Service, key: str, entry: Entry, *, quietly: bool) -> bool:
    """Settle a hold by an entry without a balance; the entry gets its balance and its id.

    Return False if nothing has changed: there is no such hold or, with `quietly`, something is to be announced or no
    column holds the sum. Without `quietly`, raise DataError if no column holds the sum.
    """
    texts = [entry.key, entry.workspace_id, entry.description]
    day = entry.created_at.astimezone(UTC).date()
    parameters = [key, stored_amount(entry.amount), *texts, entry.created_at, day, quietly]
    found = _fetched(_SETTLE, [namespace_id, service, *parameters])
    if found is not None:
        entry.balance_id, entry.balance_after, entry.pk = found[0], amount_of_stored(found[1]), found[2]
        entry._state.adding = False
    return found is not None


def hold_remove(balance_id: int, key: str, number: int | None = None) -> Decimal | None:
    """Delete a hold and return its amount. Only one of several callers can delete it; the others get None.

    Every caller changes the balance after this, so that no two wait for each other in a circle. `number`: the id of the
    row; another hold with the same key stays.
    """
    row = [balance_id, key] if number is None else [balance_id, key, number]
    found = _fetched(_REMOVE_HOLD if number is None else _REMOVE_HOLD_ROW, row)
    return amount_of_stored(found[0]) if found else None


def balance_give_back(balance_id: int, held: Decimal) -> None:
    """Subtract from the held credits of a balance."""
    with connection.cursor() as cursor:
        cursor.execute(_GIVE_BACK, [stored_amount(held), balance_id])


def add_spending(rows: Sequence[tuple[int, date, int, int]]) -> None:
    """Add to the rows of balances and days: credits as they are stored, and requests. Missing rows are created."""
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            cursor.execute(_sql_spending(len(some)), [value for row in some for value in row])


def spending_sum(table: str) -> str:
    """Return the SQL of a day's credits after an addition.

    A day on which a full balance was reset may have more than the column holds. It stays at the column's end, by which
    the check of the ledger knows it.
    """
    full = stored_amount(MAX_CREDITS)
    return (
        f"CASE WHEN {table}.credits = {full} THEN {full}"
        f" ELSE least({table}.credits::numeric + excluded.credits, {full}) END"
    )


def _sql_spending(count: int) -> str:
    table = Spending._meta.db_table
    values = ", ".join(["(%s, %s, %s, %s)"] * count)
    return (
        f"INSERT INTO {table} (balance_id, day, credits, requests) VALUES {values}"  # noqa: S608
        " ON CONFLICT (balance_id, day) DO UPDATE"
        f" SET credits = {spending_sum(table)}, requests = {table}.requests + excluded.requests"
    )


def _fetched(sql: str, params: list[Any]) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: tuple[Any, ...] | None = cursor.fetchone()
    return found
