"""Triggers by which the database itself refuses to change or delete the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AppendOnly:
    table: str
    refusal: str

    @property
    def statements(self) -> tuple[str, ...]:
        """Return the statements that make the function and its triggers."""
        refuse = f"EXECUTE FUNCTION {self.table}_refuse()"
        return (
            f"CREATE FUNCTION {self.table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{self.refusal}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
            f"CREATE TRIGGER {self.table}_fixed BEFORE UPDATE OR DELETE ON {self.table} FOR EACH ROW {refuse}",
            f"CREATE TRIGGER {self.table}_whole BEFORE TRUNCATE ON {self.table} FOR EACH STATEMENT {refuse}",
        )

    def protect(self, apps: Any, schema_editor: Any) -> None:
        """Make the triggers, in a migration."""
        for statement in self.statements:
            schema_editor.execute(statement)

    def unprotect(self, apps: Any, schema_editor: Any) -> None:
        """Remove the triggers, in a migration."""
        for name in ("fixed", "whole"):
            schema_editor.execute(f"DROP TRIGGER {self.table}_{name} ON {self.table}")
        schema_editor.execute(f"DROP FUNCTION {self.table}_refuse()")
