"""Function of the database by which a permit is one statement: counters, rows and the hold of credits.

An account on which many requests reserve is locked from the first statement to the commit. A client between the
statements would keep all others waiting.

A migration that changes one of these tables, `credits_hold_take` or these rules makes the function again
(`create_function`).
"""

from __future__ import annotations

from typing import Any

# Codes of errors by what was missing: nothing was done then.
NO_NAMESPACE, NO_POOL_ROOM, NO_ACCOUNT_ROOM, NO_HOLD = "CD001", "CD002", "CD003", "CD004"

_RESERVE = """
    UPDATE cdn_pool SET
        reserved_bytes = reserved_bytes + wanted, reserved_files = reserved_files + 1, open_permits = open_permits + 1,
        month_bytes = CASE WHEN month < of_month THEN 0 ELSE month_bytes END,
        month_files = CASE WHEN month < of_month THEN 0 ELSE month_files END,
        month = greatest(month COLLATE "C", of_month COLLATE "C")
    WHERE owner = {owner}
        AND ({limits}[1] IS NULL OR stored_bytes + trashed_bytes + reserved_bytes + wanted <= {limits}[1])
        AND ({limits}[2] IS NULL
            OR CASE WHEN month < of_month THEN 0 ELSE month_bytes END + reserved_bytes + wanted <= {limits}[2])
        AND ({limits}[3] IS NULL OR stored_files + trashed_files + reserved_files + 1 <= {limits}[3])
        AND ({limits}[4] IS NULL OR open_permits + 1 <= {limits}[4]);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no room' USING ERRCODE = '{code}';
    END IF;
"""
RESERVE_OF_POOL = _RESERVE.format(owner="pool_key", limits="pool_limits", code=NO_POOL_ROOM)
RESERVE_OF_ACCOUNT = _RESERVE.format(owner="of_account", limits="account_limits", code=NO_ACCOUNT_ROOM)
FUNCTION = f"""
CREATE OR REPLACE FUNCTION cdn_permit_take(
    of_account text, of_namespace text, pool_key text, of_month text, wanted bigint, pool_limits bigint[],
    account_limits bigint[], file_row jsonb, permit_row jsonb, payer text, price bigint, hold_key text, entry_key text,
    hold_until timestamptz, made_at timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM accounts_account WHERE id = of_account FOR NO KEY UPDATE;
    IF of_namespace IS NOT NULL
        AND NOT EXISTS (SELECT FROM namespaces_namespace WHERE id = of_namespace AND deleted_at IS NULL)
    THEN
        RAISE EXCEPTION 'no namespace' USING ERRCODE = '{NO_NAMESPACE}';
    END IF;
    {RESERVE_OF_POOL}
    {RESERVE_OF_ACCOUNT}
    INSERT INTO cdn_file SELECT * FROM jsonb_populate_record(NULL::cdn_file, file_row);
    INSERT INTO cdn_permit SELECT * FROM jsonb_populate_record(NULL::cdn_permit, permit_row);
    PERFORM FROM credits_hold_take(payer, 'cdn', price, hold_key, entry_key, hold_until, made_at);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no hold' USING ERRCODE = '{NO_HOLD}';
    END IF;
END $$
"""  # noqa: S608 - constants of this module


def create_function(apps: Any, schema_editor: Any) -> None:
    """Create the function, for migrations."""
    schema_editor.execute(FUNCTION)


def drop_function(apps: Any, schema_editor: Any) -> None:
    """Drop the function, for migrations."""
    schema_editor.execute("DROP FUNCTION IF EXISTS cdn_permit_take")
