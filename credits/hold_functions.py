"""Functions of the database by which a hold, and a settlement, are one statement each.

A balance on which many requests spend is locked from the change of its row to the commit. A client between two
statements would keep all others waiting. A function whose plans the session keeps takes a tenth of a millisecond.

A migration that changes one of these tables or rules makes the functions again (`create_functions`).
"""

from __future__ import annotations

from typing import Any

from credits.statements import spending_sum

# Returns no row if the key was used, if there is no room, if no column holds the sum, if there is no balance yet, and
# if the balance has no quota while a default applies. Reads after the lock see what others have committed.
HOLD = """
CREATE OR REPLACE FUNCTION credits_hold_take(
    of_namespace text, of_service text, wanted bigint, hold_key text, entry_key text, until timestamptz,
    made_at timestamptz
) RETURNS TABLE (taken_balance_id bigint, taken_hold_id bigint) LANGUAGE plpgsql AS $$
DECLARE
    b credits_balance;
BEGIN
    SELECT * INTO b FROM credits_balance WHERE namespace_id = of_namespace AND service = of_service FOR NO KEY UPDATE;
    IF b.id IS NULL
        OR b.used::numeric + b.held + wanted > least(b.quota_limit::numeric + b.overdraft, 9223372036854775807)
    THEN
        RETURN;
    END IF;
    IF b.quota_limit IS NULL AND EXISTS (
        SELECT FROM credits_quotadefault WHERE account_id = b.account_id AND service = b.service AND auto_apply
    ) THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM credits_hold WHERE balance_id = b.id AND key = hold_key)
        OR EXISTS (SELECT FROM credits_entry WHERE balance_id = b.id AND key = entry_key)
    THEN
        RETURN;
    END IF;
    UPDATE credits_balance SET held = held + wanted WHERE id = b.id;
    RETURN QUERY INSERT INTO credits_hold (balance_id, key, amount, expires_at, created_at)
        VALUES (b.id, hold_key, wanted, until, made_at) RETURNING credits_hold.balance_id, credits_hold.id;
END $$
"""
# Returns no row if there is no such hold. With `quietly` it also returns none if no column holds the sum, and if a
# threshold or the hard block is reached: then the caller settles in a transaction with the announcements
# (`zones.announce_charges`).
SETTLE = f"""
CREATE OR REPLACE FUNCTION credits_hold_settle(
    of_namespace text, of_service text, hold_key text, spent bigint, entry_key text, of_workspace text, because text,
    made_at timestamptz, of_day date, quietly boolean
) RETURNS TABLE (settled_balance_id bigint, used_then bigint, settled_entry_id bigint) LANGUAGE plpgsql AS $$
DECLARE
    of_balance bigint;
    b credits_balance;
    h credits_hold;
BEGIN
    SELECT id INTO of_balance FROM credits_balance WHERE namespace_id = of_namespace AND service = of_service;
    SELECT * INTO h FROM credits_hold WHERE balance_id = of_balance AND key = hold_key FOR UPDATE;
    IF h.id IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO b FROM credits_balance WHERE id = h.balance_id FOR NO KEY UPDATE;
    IF quietly AND (
        b.used::numeric + spent > 9223372036854775807
        OR b.used::numeric + spent > b.quota_limit::numeric + b.overdraft
        OR EXISTS (
            SELECT FROM jsonb_array_elements_text(b.notification_thresholds) AS due(percent)
            WHERE (b.last_threshold_fired IS NULL OR percent::float8 > b.last_threshold_fired)
            AND (b.used::numeric + spent) * 100 >= b.quota_limit * percent::numeric
        )
    ) THEN
        RETURN;
    END IF;
    DELETE FROM credits_hold WHERE id = h.id;
    UPDATE credits_balance SET used = b.used + spent, held = b.held - h.amount WHERE id = b.id;
    INSERT INTO credits_spending AS s (balance_id, day, credits, requests) VALUES (b.id, of_day, spent, 1)
        ON CONFLICT (balance_id, day) DO UPDATE
        SET credits = {spending_sum("s")}, requests = s.requests + excluded.requests;
    RETURN QUERY INSERT INTO credits_entry
        (balance_id, kind, amount, balance_after, workspace_id, description, key, created_at)
        VALUES (b.id, 'charge', spent, b.used + spent, of_workspace, because, entry_key, made_at)
        RETURNING credits_entry.balance_id, credits_entry.balance_after, credits_entry.id;
END $$
"""  # noqa: S608 - a constant


def create_functions(apps: Any, schema_editor: Any) -> None:
    """Create the functions, for migrations."""
    schema_editor.execute(HOLD)
    schema_editor.execute(SETTLE)


def drop_functions(apps: Any, schema_editor: Any) -> None:
    """Drop the functions, for migrations."""
    for name in ("credits_hold_take", "credits_hold_settle"):
        schema_editor.execute(f"DROP FUNCTION IF EXISTS {name}")
