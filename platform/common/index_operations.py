"""Migrations that add indexes to large tables or remove them. Each may be repeated: they run with `atomic = False`, so
that a migration that died or met a full disk is continued from its beginning.
"""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations import AddIndex, RemoveIndex


class AddIndexBesideWriters(AddIndex):
    """On PostgreSQL by CREATE INDEX CONCURRENTLY, which writers do not wait for. The migration has `atomic = False`.

    Safe to repeat: what an attempt that died has left is dropped first. SQLite builds it in one statement, in which
    no other process writes.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        how = _how(schema_editor)
        concurrently = "CONCURRENTLY " if how else ""
        schema_editor.execute(f"DROP INDEX {concurrently}IF EXISTS {schema_editor.quote_name(self.index.name)}")
        schema_editor.add_index(model, self.index, **how)
        if how:
            # Without statistics of an expression its index is not used, and nothing else takes them until rows change.
            schema_editor.execute(f"ANALYZE {schema_editor.quote_name(model._meta.db_table)}")

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.remove_index(model, self.index, **_how(schema_editor))


class AddIndexIfMissing(AddIndexBesideWriters):
    """An index that a migration has by now, but had not in the version that some databases were migrated with."""

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The state has it already."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        table = to_state.apps.get_model(app_label, self.model_name)._meta.db_table
        if not _is_usable(schema_editor.connection, table, self.index.name):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """It stays: it is the earlier migration's."""


class RemoveIndexIfThere(RemoveIndex):
    """As Django's, which fails on SQLite where the index is not there any more."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.execute(f"DROP INDEX IF EXISTS {schema_editor.quote_name(self.name)}")


def _is_usable(connection: Any, table: str, index: str) -> bool:
    """Whether the index is there. On PostgreSQL an attempt that died leaves one that no query ever uses."""
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            return index in connection.introspection.get_constraints(cursor, table)
        cursor.execute(
            "SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid", [connection.ops.quote_name(index)]
        )
        return cursor.fetchone() is not None


def _how(schema_editor: Any) -> dict[str, bool]:
    return {"concurrently": True} if schema_editor.connection.vendor == "postgresql" else {}
