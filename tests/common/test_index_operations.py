"""Migrations of indexes: repeated after a death, and for databases of an earlier version of the same migration."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

pytestmark = pytest.mark.django_db(transaction=True)
# Migration: its table, the indexes that are there after it, one that is not.
MIGRATIONS = {
    ("cdn", "0003_lists_of_a_status"): ("cdn_permit", {"cdn_permit_by_state"}, ""),
    ("notifications", "0003_sends_of_a_state"): ("notifications_send", {"send_in_state"}, ""),
    ("staff", "0005_entries_of_a_user"): (
        "staff_staffentry", {"staff_entry_by_type", "staff_entry_of_user"}, "staff_entry_by_user",
    ),
    ("sandboxes", "0005_events_of_accounts"): ("sandboxes_sandboxevent", {"sandbox_event_of_account"}, ""),
    ("webhooks", "0007_lists_of_a_status"): ("webhooks_event", {"event_of_account"}, ""),
    ("workspaces", "0020_no_index_by_kind"): ("workspaces_workspace", {"workspace_on_host"}, "workspace_by_kind"),
    ("workspaces", "0022_lists_of_accounts"): ("workspaces_operation", {"operation_of_account"}, ""),
}  # fmt: skip


def indexes(table: str) -> set[str]:
    with connection.cursor() as cursor:
        return set(connection.introspection.get_constraints(cursor, table))


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def rows(sql: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {name for (name,) in cursor.fetchall()}


def run_again(app: str, name: str) -> None:
    loader = MigrationLoader(connection)
    migration, state = loader.get_migration(app, name), loader.project_state((app, name))
    with connection.schema_editor(atomic=False) as editor:
        for operation in migration.operations:
            operation.database_forwards(app, editor, state, state)


@pytest.mark.parametrize(("app", "name"), MIGRATIONS)
def test_a_database_of_an_earlier_version_of_a_migration_gets_its_indexes(app: str, name: str) -> None:
    table, wanted, unwanted = MIGRATIONS[app, name]
    present = indexes(table)
    assert wanted <= present
    for index in wanted:
        execute(f"DROP INDEX {index}")
    if unwanted:
        execute(f"CREATE INDEX {unwanted} ON {table} (id)")
    for _ in range(2):  # the second time as after a death
        run_again(app, name)
        assert indexes(table) == present


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite makes an index as a whole or not at all")
@pytest.mark.parametrize(("app", "name"), MIGRATIONS)
def test_an_index_whose_build_died_is_built_again(app: str, name: str) -> None:
    """As CREATE INDEX CONCURRENTLY leaves it: there, changed with each row, and used by no query."""
    wanted = MIGRATIONS[app, name][1]
    invalid = "SELECT relname FROM pg_index JOIN pg_class ON oid = indexrelid WHERE NOT indisvalid"
    for index in wanted:
        execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{index}'::regclass")
    assert rows(invalid) == wanted
    run_again(app, name)
    assert rows(invalid) == set()


@pytest.mark.parametrize(
    ("app", "name", "table", "removed"),
    [
        ("workspaces", "0019_staff_lists", "workspaces_activity", "activity_by_workspace"),
        ("staff", "0004_staff_lists", "staff_staffentry", "staff_entry_by_user"),
    ],
)
def test_a_migration_that_died_after_it_removed_an_index_is_run_again(
    app: str, name: str, table: str, removed: str
) -> None:
    present = indexes(table)
    assert removed not in present
    run_again(app, name)
    assert indexes(table) == present
