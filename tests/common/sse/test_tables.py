"""Event streams have no tables; a database of an earlier version loses those of django-eventstream."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection

pytestmark = pytest.mark.django_db(transaction=True)  # SQLite changes no schema within a transaction
TABLES = {"django_eventstream_event", "django_eventstream_eventcounter"}


def tables() -> set[str]:
    return set(connection.introspection.table_names())


def test_the_tables_of_an_earlier_version_are_dropped() -> None:
    assert not TABLES & tables()
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f'CREATE TABLE "{table}" (id integer)')
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('django_eventstream', '0001_initial', CURRENT_TIMESTAMP)"
        )
    drop = import_module("accounts.migrations.0004_drop_eventstream_tables").drop
    with connection.schema_editor() as editor:
        for _ in range(2):
            drop(apps, editor)
    assert not TABLES & tables()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations WHERE app = 'django_eventstream'")
        assert cursor.fetchone() == (0,)
