"""Rows of a time, found by their primary keys.

Keys are in the order in which rows are made, those of `common.ids` and numbers alike. So rows that are older than a
month, or none in the last hour, are found without an index of times, which each of these tables would have to maintain.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connections, router
from django.db.models import DateTimeField, Model, Q

from common.admin_input import ID
from common.ids import first_id

# By how much the order of keys and that of times may differ: a transaction takes its number before it ends.
MARGIN = timedelta(hours=1)
MICROSECONDS = 10**6  # in a second


def rows_since(model: type[Model], column: str, at: datetime) -> Q:
    """Rows whose `column`, the time at which they were made, is `at` or later. At most one query.

    The column has times, or microseconds since 1970.
    """
    key = _first_key(model, column, at - MARGIN)
    return Q(**{f"{column}__gte": _stored(model, column, at)}) & (Q() if key is None else Q(pk__gte=key))


def rows_before(model: type[Model], column: str, at: datetime) -> Q:
    """Those of an earlier time. At most one query."""
    key = _first_key(model, column, at + MARGIN)
    return Q(**{f"{column}__lt": _stored(model, column, at)}) & (Q() if key is None else Q(pk__lt=key))


def _stored(model: type[Model], column: str, at: datetime) -> datetime | int:
    has_times = isinstance(model._meta.get_field(column), DateTimeField)
    return at if has_times else round(at.timestamp() * MICROSECONDS)


def _first_key(model: type[Model], column: str, at: datetime) -> Any:
    """A key before which there are only rows of earlier times; None where keys are in no such order."""
    pk: Any = model._meta.pk
    if "AutoField" in pk.get_internal_type():
        field: Any = model._meta.get_field(column)
        return _first_number(model, field.column, at)
    known = pk.default() if pk.has_default() else _newest_key(model)
    return first_id(known.split("_")[0], at) if isinstance(known, str) and ID.fullmatch(known) else None


def _newest_key(model: type[Model]) -> Any:
    return model._default_manager.order_by("-pk").values_list("pk", flat=True).first()


def _first_number(model: type[Model], column: str, at: datetime) -> int | None:
    """By halving: about 24 reads of the primary key for ten million rows, in one query."""
    connection = connections[router.db_for_read(model)]
    names: Any = (model._meta.db_table, model._meta.pk.column, column)
    table, key, time = (connection.ops.quote_name(name) for name in names)
    middle = "(low + high) / 2"
    earlier = f"(SELECT {time} FROM {table} WHERE {key} >= {middle} ORDER BY {key} LIMIT 1) < %s"  # noqa: S608
    # Each by itself: SQLite reads the whole table for both together.
    ends = f"(SELECT MIN({key}) FROM {table}), (SELECT MAX({key}) + 1 FROM {table})"  # noqa: S608
    sql = (
        f"WITH RECURSIVE part(low, high) AS (SELECT {ends} UNION ALL"  # noqa: S608
        f" SELECT CASE WHEN {earlier} THEN {middle} + 1 ELSE low END, CASE WHEN {earlier} THEN high ELSE {middle} END"
        " FROM part WHERE low < high) SELECT low FROM part WHERE low >= high"  # names of columns
    )
    with connection.cursor() as cursor:
        value = model._meta.get_field(column).get_db_prep_value(_stored(model, column, at), connection)  # type: ignore[union-attr]
        cursor.execute(sql, [value] * 2)
        found = cursor.fetchone()
    return None if found is None else int(found[0])
