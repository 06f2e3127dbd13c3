"""`python -m tests.upgraded_database RELEASE`: a database of that release with a row in every table, then migrated;
prints as JSON what differs. In a process of its own, on the empty database of PLATFORM_DATABASE_URL.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from itertools import count
from typing import Any

import django
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

# Each release that is upgraded from, with the last migration of the apps that it had beyond their first one; None: the
# app came later.
RELEASES: dict[str, dict[str, str | None]] = {"0.1.0": {}}
# Django's own apps are at their last migration.
DJANGO = ("admin", "auth", "contenttypes", "sessions")
# Written by the migrations themselves and by Django.
NOT_FILLED = {"django_migrations", "django_content_type", "auth_permission"}
_numbers = count(1)

Rows = dict[str, list[dict[str, str]]]


def main(release: str) -> None:
    django.setup()
    executor = MigrationExecutor(connection)
    executor.migrate(targets_of(executor.loader.graph, release))
    executor = MigrationExecutor(connection)
    fill_tables(executor.loader.project_state(list(executor.loader.applied_migrations)).apps)
    before = rows_of(connection.introspection.table_names())
    call_command("migrate", interactive=False, verbosity=0)
    after = rows_of(connection.introspection.table_names())
    read_models()
    report = {"filled": sorted(name for name, rows in before.items() if rows), "tables": sorted(before)}
    print(json.dumps({**report, "differences": differences(before, after)}))  # noqa: T201


def targets_of(graph: Any, release: str) -> list[tuple[str, str]]:
    """Return the last migration of each app that the release had."""
    own = {app for app, _ in graph.nodes} - set(DJANGO)
    named = {app: RELEASES[release].get(app, graph.root_nodes(app)[0][1]) for app in sorted(own)}
    last = [key for app in DJANGO for key in graph.leaf_nodes(app)]
    return last + [(app, name) for app, name in named.items() if name]


def fill_tables(apps: Any) -> None:
    """A row in every table; those that foreign keys lead to first, by recursion."""
    for model in apps.get_models(include_auto_created=True):
        if model._meta.managed and not model._meta.proxy and model._meta.db_table not in NOT_FILLED:
            row_of(model)


def row_of(model: Any) -> Any:
    """The table's first row; makes one where it has none."""
    found = model._base_manager.first()
    if found is not None:
        return found
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    values = {field.name: value_of(field) for field in fields if not has_own_value(field)}
    try:
        with transaction.atomic():
            return model._base_manager.create(**values)
    except IntegrityError:  # a check: not all of what may be empty is set at once
        values |= {field.name: None for field in fields if field.null and not field.is_relation}
    try:
        return model._base_manager.create(**values)
    except IntegrityError as error:
        raise AssertionError(f"{model._meta.label}: {error}: {values}") from error


def has_own_value(field: Any) -> bool:
    """Of the database; or of a reference to its own table, which has no row yet."""
    return bool(field.generated or (field.null and field.is_relation and field.related_model is field.model))


def value_of(field: Any) -> Any:
    if field.is_relation:
        return row_of(field.related_model)
    default = field.get_default() if field.has_default() else None
    if default not in ("", None):
        return default
    if field.choices:
        return field.flatchoices[0][0]
    return plain_value(field)


def plain_value(field: Any) -> Any:
    number = next(_numbers)
    found: dict[type, Any] = {
        models.BooleanField: True,
        models.DateTimeField: timezone.now() - timedelta(minutes=number),
        models.DateField: (timezone.now() - timedelta(days=1)).date(),
        models.JSONField: {},
        models.BinaryField: b"bytes",
        models.GenericIPAddressField: f"10.0.{number // 250}.{number % 250 + 1}",
        models.DurationField: timedelta(seconds=number),
    }
    for kind, value in found.items():
        if isinstance(field, kind):
            return value
    if isinstance(field, models.IntegerField | models.FloatField | models.DecimalField):
        return 1 + number % 100
    return f"text{number}"[: field.max_length or 100]


def rows_of(tables: list[str]) -> Rows:
    found: Rows = {}
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            names = [column[0] for column in cursor.description]
            found[table] = [dict(zip(names, map(str, row), strict=True)) for row in cursor.fetchall()]
    return found


def differences(before: Rows, after: Rows) -> list[str]:
    """`table` where it is gone, `table.column` where that is gone, or what its rows had is not there any more."""
    found = [table for table in before if table not in after]
    for table in before.keys() & after.keys():
        for column in {name for row in before[table] for name in row}:
            left = [row.get(column) for row in after[table]]
            if any(row[column] not in left for row in before[table]):
                found.append(f"{table}.{column}")
    return sorted(found)


def read_models() -> None:
    """Every row as the models of today read it."""
    from django.apps import apps

    for model in apps.get_models():
        if model._meta.managed:
            list(model._base_manager.all())


if __name__ == "__main__":
    main(sys.argv[1])
