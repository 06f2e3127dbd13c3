"""Migrations that add an index to a large table."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations import AddIndex


class AddIndexBesideWriters(AddIndex):
    """On PostgreSQL by CREATE INDEX CONCURRENTLY: writers go on meanwhile. The migration has `atomic = False`.

    Safe to repeat: what an attempt that died has left, which is no valid index, is dropped first. SQLite builds it in the
    transaction of this operation, in which nobody else writes.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            name = schema_editor.quote_name(self.index.name)
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            schema_editor.add_index(model, self.index, concurrently=True)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
            return
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.remove_index(model, self.index, concurrently=True)
