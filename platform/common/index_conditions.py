"""Conditions by which SQLite uses an index, or does not.

It uses a partial index only where the query has the same literals as the index.
"""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, F, Func


class _Literally(Func):
    output_field = BooleanField()

    def __init__(self, *columns: Any, condition: str, **extra: Any) -> None:
        super().__init__(*columns, condition=condition, **extra)

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        columns = [compiler.compile(column)[0] for column in self.get_source_expressions()]
        return f"({self.extra['condition'].format(*columns)})", []


def literally(condition: str, *columns: str) -> Func:
    """For `filter`: SQL as the index was declared with, with `{}` for each column. Constants of the code only: nothing
    is quoted."""
    return _Literally(*columns, condition=condition)


class _Unindexed(Func):
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)


def unindexed(column: str) -> Func:
    """The column, for a condition that SQLite shall not use an index for: it has no statistics, and expects ten rows of
    each value. PostgreSQL has them, and decides by itself."""
    return _Unindexed(F(column))
