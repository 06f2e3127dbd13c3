"""Many rows from few: copies made by the database itself, with ids and times of their own and other owners."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

SPAN_MS = 90 * 86_400_000
# Before what the sample wrote: an hour in which little happened ends a table.
QUIET_MS = 2 * 3_600_000
ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"
_letters = itertools.cycle(ALPHABET)  # so that ids of two kinds of copies differ
# Not null, and not a time at which the row was written.
AHEAD = ("expires", "deadline", "due", "until", "next_", "not_before", "last_seen")
PICKS = {
    # One row of each.
    "each": "n.number",
    # Of 100 rows one belongs to the first, 25 to one in a hundred, the others to all alike.
    "skewed": "CASE WHEN n.number % 100 = 1 THEN 0 WHEN n.number % 4 = 0 THEN (n.number / 4 * 7919) % {few} "
    "ELSE (n.number * 7919) % {count} END",
}


@dataclass
class Parents:
    """Rows that others refer to: `names` are their columns in the temporary table of their keys."""

    table: str
    names: tuple[str, ...]
    count: int


@dataclass
class Copies:
    """`count` copies of the rows of `model` for which `which` holds. `of`: whose rows they are, and how these are
    picked. `changed`: SQL for columns; `n.number` is the number of the copy, `n.ms` its time, `p0` its first owner.
    """

    model: Any
    count: int
    of: tuple[tuple[Parents, str], ...] = ()
    which: str = "1 = 1"
    changed: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return str(self.model._meta.db_table)

    @cached_property
    def begin_ms(self) -> int:
        return int(time.time() * 1000) - QUIET_MS - SPAN_MS

    def make(self) -> None:
        sample = _sample(self.table, self.which, self.model._meta.pk.column)
        fields = [each for each in self.model._meta.concrete_fields if "AutoField" not in each.get_internal_type()]
        names = ", ".join(f'"{each.column}"' for each in fields)
        values = ", ".join(self._value(each) for each in fields)
        joins, where = "", [f"s.rn = n.number % {sample}"]
        for number, (parents, pick) in enumerate(self.of):
            joins += f" CROSS JOIN {parents.table} p{number}"
            few = max(1, parents.count // 100)
            where.append(f"p{number}.rn = " + PICKS.get(pick, pick).format(few=few, count=parents.count))
        _execute(
            f"INSERT INTO {self.table} ({names}) SELECT {values} FROM {self._numbers()} n CROSS JOIN bench_sample s"
            f"{joins} WHERE {' AND '.join(where)}"
        )

    def _numbers(self) -> str:
        step = max(1, SPAN_MS // max(1, self.count))
        rows = f"generate_series(0::bigint, {self.count - 1}) AS g(number)"
        return f"(SELECT number, {self.begin_ms} + number * {step} AS ms FROM {rows})"

    def _value(self, column: Any) -> str:
        name = column.column
        if name in self.changed:
            return self.changed[name]
        for number, (parents, _) in enumerate(self.of):
            if name in parents.names:
                return f"p{number}.{name}"
        kept = f's."{name}"'
        if column.primary_key:
            return new_id(_prefix(self.model), next(_letters))
        if column.get_internal_type() == "DateTimeField" and not any(part in name for part in AHEAD):
            return f"CASE WHEN {kept} IS NULL THEN NULL ELSE {moment('n.ms')} END" if column.null else moment("n.ms")
        return kept


def new_id(prefix: str, letter: str) -> str:
    """SQL for an id as `common.ids.new_id` makes them, of the copy's time; of up to a million copies."""
    head = " || ".join(
        f"substr('{ALPHABET}', CAST(((n.ms >> {shift}) & 31) + 1 AS integer), 1)" for shift in range(40, -1, -5)
    )
    return f"'{prefix}_' || {head} || '{letter}' || {digits(6)}"


def digits(count: int) -> str:
    """SQL for the copy's number, with zeros before it."""
    return f"lpad(n.number::text, {count}, '0')"


def moment(milliseconds: str) -> str:
    """SQL for a time, as the column has it."""
    return f"to_timestamp({milliseconds} / 1000.0)"


def _sample(table: str, which: str, key: str) -> int:
    _execute("DROP TABLE IF EXISTS bench_sample")
    _execute(
        f"CREATE TEMPORARY TABLE bench_sample AS SELECT ROW_NUMBER() OVER (ORDER BY {key}) - 1 AS rn, t.*"
        f" FROM {table} t WHERE {which}"
    )
    _execute("CREATE INDEX bench_sample_rn ON bench_sample (rn)")
    found = _execute("SELECT COUNT(*) FROM bench_sample")[0][0]
    if not found:
        raise SystemExit(f"the sample has no row of {table} with {which}")
    return int(found)


def keys_of(copies: Copies, name: str, table: str = "", which: str = "1 = 1") -> Parents:
    """The keys of the copies as `name`, and what these rows refer to, numbered in the order of time."""
    model, table = copies.model, f"bench_{table or name}"
    pk = model._meta.pk
    others = tuple(
        each.column for each in model._meta.concrete_fields if each.column.endswith("_id") and not each.primary_key
    )
    if "AutoField" in pk.get_internal_type():
        made = f"{pk.column} > (SELECT MAX({pk.column}) FROM {copies.table}) - {copies.count}"
    else:
        made = f"{pk.column} < '{_prefix(model)}_{_encoded(int(time.time() * 1000) - QUIET_MS // 2)}'"
    shown = "".join(f", {column}" for column in others)
    _execute(
        f"CREATE TEMPORARY TABLE {table} AS SELECT ROW_NUMBER() OVER (ORDER BY {pk.column}) - 1 AS rn,"
        f" {pk.column} AS {name}{shown} FROM {copies.table} WHERE {made} AND {which}"
    )
    _execute(f"CREATE INDEX {table}_rn ON {table} (rn)")
    _execute(f"ANALYZE {table}")
    return Parents(table, (name, *others), int(_execute(f"SELECT COUNT(*) FROM {table}")[0][0]))


def _prefix(model: Any) -> str:
    """Of the ids in this table."""
    return str(model._default_manager.order_by().values_list("pk", flat=True)[0]).split("_")[0]


def _encoded(milliseconds: int) -> str:
    return "".join(ALPHABET[(milliseconds >> shift) & 31] for shift in range(40, -1, -5))


def _execute(sql: str) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


def execute(*statements: str) -> None:
    for statement in statements:
        _execute(statement)
