"""Statements on the rows that many requests change at once: each decides, writes and reads in one, so that a row is
locked for as short as it can be.

Called by `entries`, `holds` and `metered_charges` only. Locks are taken in one order: the hold, then its balance.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from credits.amounts import MAX_CREDITS, amount_of_stored, stored_amount
from credits.models import Balance, Entry, Hold, QuotaDefault, Service, Spending

BALANCE, HOLD = Balance._meta.db_table, Hold._meta.db_table
_ROWS = 200  # of one INSERT

# PostgreSQL: see `hold_functions`.
_HOLD = "SELECT * FROM credits_hold_take(%s, %s, %s, %s, %s, %s, %s)"
_SETTLE_QUIETLY = "SELECT * FROM credits_hold_settle(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
# SQLite: a balance that a default quota applies to is left to the caller, as is a key that was used before.
_TAKE_ROOM = f"""
UPDATE {BALANCE} SET held = held + %s
WHERE namespace_id = %s AND service = %s
AND held <= %s - used
AND (quota_limit >= used + held + %s - overdraft OR quota_limit IS NULL AND NOT EXISTS (
    SELECT 1 FROM {QuotaDefault._meta.db_table} applied
    WHERE applied.account_id = {BALANCE}.account_id AND applied.service = {BALANCE}.service AND applied.auto_apply))
AND NOT EXISTS (SELECT 1 FROM {HOLD} WHERE balance_id = {BALANCE}.id AND "key" = %s)
AND NOT EXISTS (SELECT 1 FROM {Entry._meta.db_table} WHERE balance_id = {BALANCE}.id AND "key" = %s)
RETURNING id
"""  # noqa: S608
# The sum is compared before it is made: PostgreSQL raises an error beyond 64 bits, SQLite makes it a fraction.
_SETTLE = f"UPDATE {BALANCE} SET used = used + %s, held = held - %s WHERE id = %s AND used <= %s RETURNING *"  # noqa: S608
_GIVE_BACK = f"UPDATE {BALANCE} SET held = held - %s WHERE id = %s"  # noqa: S608
_REMOVE_HOLD = f'DELETE FROM {HOLD} WHERE balance_id = %s AND "key" = %s RETURNING amount'  # noqa: S608
_REMOVE_HOLD_ROW = f'DELETE FROM {HOLD} WHERE balance_id = %s AND "key" = %s AND id = %s RETURNING amount'  # noqa: S608


def hold_insert(namespace_id: str, service: Service, hold: Hold, entry_key: str) -> bool:
    """Hold, if there is room and neither key was used; `hold` gets its balance and its id. False: nothing has changed,
    for one of many reasons. Raises IntegrityError where another transaction used the key at the same time.
    """
    stored = stored_amount(hold.amount)
    with _one_statement():
        if connection.vendor == "postgresql":
            hold.created_at = timezone.now()
            keys = [hold.key, entry_key, hold.expires_at, hold.created_at]
            found = _fetched(_HOLD, [namespace_id, service, stored, *keys])
            if found is not None:
                hold.balance_id, hold.pk = found
                hold._state.adding = False
        else:
            most = stored_amount(MAX_CREDITS) - stored
            found = _fetched(_TAKE_ROOM, [stored, namespace_id, service, most, stored, hold.key, entry_key])
            if found is not None:
                hold.balance_id = found[0]
                hold.save(force_insert=True)
    return found is not None


def hold_settle_quietly(namespace_id: str, service: Service, key: str, entry: Entry) -> bool:
    """Settle a hold by an entry without a balance, which gets it and its id, where nothing is to be announced. False:
    nothing has changed; there is no such hold, something is to be announced, or the database is SQLite.
    """
    if connection.vendor != "postgresql":
        return False
    texts = [entry.key, entry.workspace_id, entry.description]
    day = entry.created_at.astimezone(UTC).date()
    with _one_statement():
        amount = stored_amount(entry.amount)
        found = _fetched(_SETTLE_QUIETLY, [namespace_id, service, key, amount, *texts, entry.created_at, day])
    if found is not None:
        entry.balance_id, entry.balance_after, entry.pk = found[0], amount_of_stored(found[1]), found[2]
        entry._state.adding = False
    return found is not None


def _one_statement() -> AbstractContextManager[Any]:
    """Inside of a transaction a savepoint, so that one that fails leaves that as it was; else it commits by itself."""
    one = connection.vendor == "postgresql" and not connection.in_atomic_block
    return nullcontext() if one else transaction.atomic()


def hold_remove(balance_id: int, key: str, number: int | None = None) -> Decimal | None:
    """Delete a hold, which only one of several callers can: its amount. Then comes the balance, in every caller, so
    that no two wait for each other in a circle.

    `number`: of the row, where another one with the key stays.
    """
    row = [balance_id, key] if number is None else [balance_id, key, number]
    found = _fetched(_REMOVE_HOLD if number is None else _REMOVE_HOLD_ROW, row)
    return amount_of_stored(found[0]) if found else None


def balance_settle(balance_id: int, used: Decimal, held: Decimal) -> Balance | None:
    """Add to what is used and take from what is held; the balance as it is then, locked. None: no column holds the sum,
    and nothing has changed.
    """
    room = stored_amount(MAX_CREDITS) - stored_amount(used)
    rows = Balance.objects.raw(_SETTLE, [stored_amount(used), stored_amount(held), balance_id, room])
    return next(iter(list(rows)), None)


def balance_give_back(balance_id: int, held: Decimal) -> None:
    """Take from what is held."""
    with connection.cursor() as cursor:
        cursor.execute(_GIVE_BACK, [stored_amount(held), balance_id])


def spending_add(rows: Sequence[tuple[int, date, int, int]]) -> None:
    """Add to the rows of balances and days: credits as they are stored, and requests. The missing ones are made."""
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            cursor.execute(_sql_spending(len(some)), [value for row in some for value in row])


def spending_sum(table: str) -> str:
    """SQL of a day's credits after an addition. A day on which a full balance was reset may have more than the column
    holds: it stays at the column's end, which is how the check of the ledger knows it.
    """
    full = stored_amount(MAX_CREDITS)
    return (
        f"CASE WHEN {table}.credits = {full}"
        f" OR excluded.credits > 0 AND {table}.credits > {full} - excluded.credits THEN {full}"
        f" ELSE {table}.credits + excluded.credits END"
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
        # All rows: on SQLite a statement that returns some ends with the last one.
        rows = cursor.fetchall()
    return rows[0] if rows else None
