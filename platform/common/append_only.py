"""Triggers by which the database itself refuses to change or delete the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AppendOnly:
    """`same`: a condition on a row of the table and `NEW`: whether SQLite's REPLACE would put NEW in its place."""

    table: str
    refusal: str
    same: str = "id = NEW.id"

    @property
    def sqlite(self) -> dict[str, str]:
        """The statement that makes each trigger, by the trigger's name."""
        # REPLACE deletes the row that is in its place without the trigger of deletions.
        taken = f"EXISTS (SELECT 1 FROM {self.table} WHERE {self.same})"  # noqa: S608
        events = {
            "update": f"UPDATE ON {self.table}",
            "delete": f"DELETE ON {self.table}",
            "replace": f"INSERT ON {self.table} WHEN {taken}",
        }
        names = {f"{self.table}_no_{name}": event for name, event in events.items()}
        refuse = f"BEGIN SELECT RAISE(ABORT, '{self.refusal}'); END"
        return {name: f"CREATE TRIGGER {name} BEFORE {event} {refuse}" for name, event in names.items()}

    @property
    def postgresql(self) -> tuple[str, ...]:
        """The statements that make the function and its triggers."""
        refuse = f"EXECUTE FUNCTION {self.table}_refuse()"
        return (
            f"CREATE FUNCTION {self.table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{self.refusal}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
            f"CREATE TRIGGER {self.table}_fixed BEFORE UPDATE OR DELETE ON {self.table} FOR EACH ROW {refuse}",
            f"CREATE TRIGGER {self.table}_whole BEFORE TRUNCATE ON {self.table} FOR EACH STATEMENT {refuse}",
        )

    def protect(self, apps: Any, schema_editor: Any) -> None:
        """For migrations: make the triggers."""
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        for statement in self.postgresql if is_postgresql else self.sqlite.values():
            schema_editor.execute(statement)

    def unprotect(self, apps: Any, schema_editor: Any) -> None:
        """For migrations: remove the triggers."""
        if schema_editor.connection.vendor == "postgresql":
            for name in ("fixed", "whole"):
                schema_editor.execute(f"DROP TRIGGER {self.table}_{name} ON {self.table}")
            schema_editor.execute(f"DROP FUNCTION {self.table}_refuse()")
        else:
            for name in self.sqlite:
                schema_editor.execute(f"DROP TRIGGER {name}")
