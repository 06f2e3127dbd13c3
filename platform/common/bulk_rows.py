"""Many rows in one statement, of values as columns store them: where a thousand model instances would take longer than
the database.

A transaction that is open has what was written; nothing is checked but by the database. The values of a column are one
array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.models import Field, Model, QuerySet

Row = Sequence[int | str]
LARGEST = 2**63 - 1  # of a column


def read_rows(query: QuerySet[Any, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of a `values_list` of columns whose values the driver returns as they are: numbers and texts."""
    sql, params = query.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def rows_insert(
    model: type[Model], columns: Sequence[str], rows: Sequence[Row], same: Mapping[str, Any] | None = None
) -> None:
    """Insert rows in their order. `same`: columns that have one value in all rows."""
    _insert(model, columns, rows, same or {}, "")


def add_rows(model: type[Model], key: Sequence[str], sums: Sequence[str], rows: Sequence[Row]) -> None:
    """Add to the `sums` of the rows with these keys, which are unique in the table and in `rows`; insert those that are
    missing. Rows are locked in the order of `rows`. A sum that would be more than its column holds stays at the
    column's end.
    """
    table, first = model._meta.db_table, len(key)
    # It is compared before it is made: a sum beyond 64 bits is an error.
    added = ", ".join(
        f"{name} = CASE WHEN excluded.{name} <= 0 THEN {table}.{name} + excluded.{name}"
        f" WHEN {table}.{name} > {LARGEST} - excluded.{name} THEN {LARGEST}"
        f" ELSE {table}.{name} + excluded.{name} END"
        for name in sums
    )
    held = [(*row[:first], *(min(int(value), LARGEST) for value in row[first:])) for row in rows]
    _insert(model, (*key, *sums), held, {}, f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {added}")


def update_rows(model: type[Model], columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write `columns` of the rows whose primary keys are the first values of `rows`. Lock them before, in one order."""
    if not rows:
        return
    table, key = model._meta.db_table, str(_field(model, "pk").column)
    names = [f"column{number}" for number in range(len(columns))]
    values = ", ".join(f"{column} = new.{name}" for column, name in zip(columns, names, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {table} SET {values} FROM unnest({_types(model, [key, *columns])})"  # noqa: S608
            f" AS new(key, {', '.join(names)}) WHERE {table}.{key} = new.key",
            _arrays(rows),
        )


def _insert(
    model: type[Model], columns: Sequence[str], rows: Sequence[Row], same: Mapping[str, Any], conflict: str
) -> None:
    if not rows:
        return
    prefix = f"INSERT INTO {model._meta.db_table} ({', '.join((*columns, *same))})"
    constants = [_field(model, name).get_db_prep_save(value, connection) for name, value in same.items()]
    chosen = ", ".join([*columns, *(f"%s::{_type(model, name)}" for name in same)])
    source = f"unnest({_types(model, columns)}) WITH ORDINALITY AS new({', '.join(columns)}, number)"
    with connection.cursor() as cursor:
        cursor.execute(
            # Ordered, so that generated ids have the order of the rows, and locks are taken in it.
            f"{prefix} SELECT {chosen} FROM {source} ORDER BY number{conflict}",  # noqa: S608
            [*constants, *_arrays(rows)],
        )


def _field(model: type[Model], column: str) -> Field[Any, Any]:
    meta = model._meta
    return meta.pk if column == "pk" else next(field for field in meta.concrete_fields if field.column == column)


def _type(model: type[Model], column: str) -> str:
    field = _field(model, column)
    return str(field.rel_db_type(connection) if field.primary_key else field.db_type(connection))


def _types(model: type[Model], columns: Sequence[str]) -> str:
    return ", ".join(f"%s::{_type(model, column)}[]" for column in columns)


def _arrays(rows: Iterable[Row]) -> list[str]:
    """Return the columns of the rows as literals of the database's arrays: a tenth of the time of the driver's own
    lists.
    """
    columns = zip(*rows, strict=True)
    # The values of a column are of one type.
    return ["{" + ",".join(map(str if isinstance(column[0], int) else _quoted, column)) + "}" for column in columns]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
