"""Statements on the rows that many requests change at once: a row is locked for as short as it can be.

On PostgreSQL a hold, and a settlement that announces nothing, are one statement each, which outside of a transaction
commits by itself: a client between two statements would keep all others waiting. SQLite has one writer at a time anyway.

Called by `ledger` and `metered_charges` only. Locks are taken in one order: the balance, then the hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date
from typing import Any

from django.db import connection, transaction

from credits.amounts import amount_of_stored, stored_amount
from credits.models import Balance, Entry, EntryKind, Hold, QuotaDefault, Service, Spending

BALANCE, HOLD, ENTRY = (model._meta.db_table for model in (Balance, Hold, Entry))
SPENDING = Spending._meta.db_table
_ROWS = 200  # of one INSERT

# A balance without a quota that a default one applies to is left to the caller, as is a key that was used before.
_TAKE_ROOM = f"""
UPDATE {BALANCE} SET held = held + %s
WHERE namespace_id = %s AND service = %s
AND (quota_limit >= used + held + %s - overdraft OR quota_limit IS NULL AND NOT EXISTS (
    SELECT 1 FROM {QuotaDefault._meta.db_table} applied
    WHERE applied.account_id = {BALANCE}.account_id AND applied.service = {BALANCE}.service AND applied.auto_apply))
AND NOT EXISTS (SELECT 1 FROM {HOLD} WHERE "key" = %s)
AND NOT EXISTS (SELECT 1 FROM {ENTRY} WHERE "key" = %s)
RETURNING id
"""  # noqa: S608
_HOLD = f"""
WITH taken AS ({_TAKE_ROOM})
INSERT INTO {HOLD} (balance_id, "key", amount, expires_at, created_at) SELECT id, %s, %s, %s, %s FROM taken
RETURNING balance_id, id
"""  # noqa: S608
_ADD_DAY = " ON CONFLICT (balance_id, day) DO UPDATE SET " + ", ".join(
    f"{name} = {SPENDING}.{name} + excluded.{name}" for name in ("credits", "requests")
)
# The conditions: neither a threshold nor the hard block is reached (`zones.announce_charges`).
_SETTLE = f"""
WITH locked AS (
    SELECT b.*, h.id AS hold_id, h.amount AS hold_amount, b.used + %s AS used_then
    FROM {HOLD} h JOIN {BALANCE} b ON b.id = h.balance_id WHERE h."key" = %s FOR UPDATE OF b
), removed AS (
    DELETE FROM {HOLD} h USING locked WHERE h.id = locked.hold_id AND (quota_limit IS NULL
    OR used_then <= quota_limit + overdraft AND NOT EXISTS (
        SELECT 1 FROM jsonb_array_elements_text(notification_thresholds) AS due(percent)
        WHERE (last_threshold_fired IS NULL OR percent::float8 > last_threshold_fired)
        AND used_then * 100.0 >= quota_limit * percent::numeric))
    RETURNING h.balance_id, h.amount
), changed AS (
    UPDATE {BALANCE} b SET used = b.used + %s, held = b.held - removed.amount
    FROM removed WHERE b.id = removed.balance_id RETURNING b.id, b.used
), spent AS (
    INSERT INTO {SPENDING} (balance_id, day, credits, requests) SELECT id, %s, %s, 1 FROM changed{_ADD_DAY}
)
INSERT INTO {ENTRY} (balance_id, balance_after, kind, amount, workspace_id, description, "key", created_at)
SELECT id, used, %s, %s, %s, %s, %s, %s FROM changed
RETURNING balance_id, balance_after, id
"""  # noqa: S608


def hold_insert(namespace_id: str, service: Service, hold: Hold, entry_key: str) -> bool:
    """Hold, if there is room and neither key was used; `hold` gets its balance and its id. False: nothing has changed,
    for one of many reasons. Raises IntegrityError where the key is used by another transaction; as above.
    """
    stored = stored_amount(hold.amount)
    wanted = [stored, namespace_id, service, stored, hold.key, entry_key]
    with _one_statement():
        if connection.vendor == "postgresql":
            hold.created_at = hold._meta.get_field("created_at").pre_save(hold, add=True)
            found = _fetched(_HOLD, [*wanted, hold.key, stored, hold.expires_at, hold.created_at])
            if found is not None:
                hold.balance_id, hold.pk = found
                hold._state.adding = False
        elif (found := _fetched(_TAKE_ROOM, wanted)) is not None:
            hold.balance_id = found[0]
            hold.save(force_insert=True)
    return found is not None


def hold_settle_quietly(key: str, entry: Entry) -> bool:
    """Settle a hold by an entry without a balance, which gets it and its id, where nothing is to be announced. False:
    nothing has changed; there is no such hold, something is to be announced, or the database is SQLite.
    """
    if connection.vendor != "postgresql":
        return False
    amount, day = stored_amount(entry.amount), entry.created_at.astimezone(UTC).date()
    texts = [entry.workspace_id, entry.description, entry.key, entry.created_at]
    with _one_statement():
        found = _fetched(_SETTLE, [amount, key, amount, day, amount, EntryKind.CHARGE, amount, *texts])
    if found is not None:
        entry.balance_id, entry.balance_after, entry.pk = found[0], amount_of_stored(found[1]), found[2]
        entry._state.adding = False
    return found is not None


def _one_statement() -> AbstractContextManager[Any]:
    """Inside of a transaction a savepoint, so that one that fails leaves that as it was; else it commits by itself."""
    one = connection.vendor == "postgresql" and not connection.in_atomic_block
    return nullcontext() if one else transaction.atomic()


def spending_add(rows: Sequence[tuple[int, date, int, int]]) -> None:
    """Add to the rows of balances and days: credits as they are stored, and requests. The missing ones are made."""
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            cursor.execute(_sql_spending(len(some)), [value for row in some for value in row])


def _sql_spending(count: int) -> str:
    values = ", ".join(["(%s, %s, %s, %s)"] * count)
    return f"INSERT INTO {SPENDING} (balance_id, day, credits, requests) VALUES {values}{_ADD_DAY}"  # noqa: S608


def _fetched(sql: str, params: list[Any]) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        # All rows: on SQLite a statement that returns some ends with the last one.
        rows = cursor.fetchall()
    return rows[0] if rows else None
