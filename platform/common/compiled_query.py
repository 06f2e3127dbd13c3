"""A query that many requests repeat, compiled once: the ORM takes longer to write such a statement than to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model, QuerySet

# What stands for a value while the statement is compiled. No value of a query contains it.
_MARK = "compiled query, value "

_M = TypeVar("_M", bound=Model)
MakeRows = Callable[[Sequence[str]], "QuerySet[Any, tuple[Any, ...]]"]


@dataclass(frozen=True, slots=True)
class _Statement:
    """`values`: those that are the same each time, and the numbers of those that are given."""

    sql: str
    values: tuple[Any, ...]
    converters: tuple[tuple[int, list[Any], Any], ...]

    def given(self, values: Sequence[str]) -> list[Any]:
        return [values[value.number] if isinstance(value, _Place) else value for value in self.values]


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a given value."""

    number: int


class CompiledQuery:
    """The rows of a query, by statements that are compiled once for each number of given values.

    `make_rows` returns rows of `values_list` for texts that its filters compare with, and must not look at them. What
    a statement finds is read at each call; nothing of a row is kept. Safe in threads.
    """

    def __init__(self, make_rows: MakeRows) -> None:
        self._make_rows = make_rows
        self._statements: dict[tuple[int, bool], _Statement] = {}

    def first_row(self, values: Sequence[str]) -> list[Any] | None:
        """Return the columns of the first row, in the order of `values_list`; None if there is none. One query."""
        return next(iter(self._found(values, is_first=True)), None)

    def all_rows(self, values: Sequence[str]) -> list[list[Any]]:
        """Return what `first_row` returns, of every row."""
        return self._found(values, is_first=False)

    def _found(self, values: Sequence[str], *, is_first: bool) -> list[list[Any]]:
        connection = connections[DEFAULT_DB_ALIAS]
        key = len(values), is_first
        statement = self._statements.get(key)
        if statement is None:  # two that compile it at once do no harm
            statement = self._statements[key] = self._compile(len(values), is_first)
        with connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.given(values))
            rows = list(map(list, cursor.fetchall()))
        for place, convert, expression in statement.converters:
            for each in convert:
                for row in rows:
                    row[place] = each(row[place], expression, connection)
        return rows

    def _compile(self, number: int, is_first: bool) -> _Statement:
        rows = self._make_rows([f"{_MARK}{each}" for each in range(number)])
        compiler = (rows[:1] if is_first else rows).query.get_compiler(DEFAULT_DB_ALIAS)
        sql, values = compiler.as_sql()
        found = compiler.get_converters([column for column, _, _ in compiler.select])
        converters = tuple((place, convert, expression) for place, (convert, expression) in found.items())
        return _Statement(sql, tuple(map(_place_of, values)), converters)


def _place_of(value: Any) -> Any:
    """Return the place that a mark stands for; any other value as it is."""
    if isinstance(value, str) and value.startswith(_MARK):
        return _Place(int(value.removeprefix(_MARK)))
    return value


def loaded_row(model: type[_M], names: Sequence[str], values: Sequence[Any]) -> _M:
    """Return the row as `only` would load it: other columns are read when they are asked for.

    `names` are in the order of `in_table_order`.
    """
    return model.from_db(DEFAULT_DB_ALIAS, names, values)


def in_table_order(model: type[Model], *names: str) -> tuple[str, ...]:
    """Return the columns as `Model.from_db` expects them."""
    return tuple(field.attname for field in model._meta.concrete_fields if field.attname in names)
