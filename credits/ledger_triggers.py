"""Triggers by which the database itself refuses to change or delete an entry of the ledger."""

from __future__ import annotations

from typing import Any

TABLE = "credits_entry"
REFUSAL = "An entry of the ledger is never changed or deleted."
# REPLACE deletes the row that is in its place without the trigger of deletions.
_TAKEN = f'EXISTS (SELECT 1 FROM {TABLE} WHERE id = NEW.id OR balance_id = NEW.balance_id AND "key" = NEW."key")'  # noqa: S608
SQLITE = {
    f"{TABLE}_no_{name}": f"CREATE TRIGGER {TABLE}_no_{name} BEFORE {event} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    for name, event in {
        "update": f"UPDATE ON {TABLE}",
        "delete": f"DELETE ON {TABLE}",
        "replace": f"INSERT ON {TABLE} WHEN {_TAKEN}",
    }.items()
}
POSTGRESQL = (
    f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
    f"CREATE TRIGGER {TABLE}_fixed BEFORE UPDATE OR DELETE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()",
    f"CREATE TRIGGER {TABLE}_whole BEFORE TRUNCATE ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
)


def protect_entries(apps: Any, schema_editor: Any) -> None:
    """For migrations: make the triggers."""
    statements = POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE.values()
    for statement in statements:
        schema_editor.execute(statement)


def unprotect_entries(apps: Any, schema_editor: Any) -> None:
    """For migrations: remove the triggers."""
    if schema_editor.connection.vendor == "postgresql":
        for name in ("fixed", "whole"):
            schema_editor.execute(f"DROP TRIGGER {TABLE}_{name} ON {TABLE}")
        schema_editor.execute(f"DROP FUNCTION {TABLE}_refuse()")
    else:
        for name in SQLITE:
            schema_editor.execute(f"DROP TRIGGER {name}")
