"""Sums of charged records by namespace and hour. Written in the transaction of the charge, by the upsert below only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import connection

from common.times import EPOCH
from credits.amounts import stored_amount
from workspaces.charging.records import ChargedRecord
from workspaces.models import LateRecord, NamespaceHour

MICRO = 1_000_000
HOUR = 3600
# What is charged later than so long after its tick counts as if it had been metered so long ago.
LATE = timedelta(minutes=9)
_SUMS = ("records", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes", "credits")
_ROWS = 100  # of one INSERT


def count_by_hour(records: Sequence[ChargedRecord], now: datetime) -> None:
    """Add the records to their hours. A report of a time that ended ten minutes ago never changes: a minute more than
    LATE, in which the transaction commits.
    """
    earliest = (now - LATE - EPOCH) // timedelta(microseconds=1)
    late = []
    for record in records:
        if record.tick < earliest:
            record.counted_at = earliest
            late.append(LateRecord(record_id=record.id, namespace_id=record.namespace_id, counted_at=earliest))
    LateRecord.objects.bulk_create(late, batch_size=_ROWS)
    _add(_sums(records))


def hour_of(microseconds: int) -> int:
    """The start of the hour, in seconds."""
    return microseconds // MICRO // HOUR * HOUR


def _sums(records: Iterable[ChargedRecord]) -> list[tuple[str | int, ...]]:
    sums: dict[tuple[str, int], list[int]] = {}
    for record in records:
        each = sums.setdefault((record.namespace_id, hour_of(record.counted_at)), [0] * len(_SUMS))
        for number, value in enumerate((1, *record.amounts, stored_amount(record.credits))):
            each[number] += value
    return [(*key, *sums[key]) for key in sorted(sums)]


def _add(rows: Sequence[tuple[str | int, ...]]) -> None:
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            cursor.execute(_sql_add(len(some)), [value for row in some for value in row])


def _sql_add(count: int) -> str:
    table = NamespaceHour._meta.db_table
    columns = ("namespace_id", "start", *_SUMS)
    values = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * count)
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in _SUMS)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}"  # noqa: S608
        f" ON CONFLICT (namespace_id, start) DO UPDATE SET {added}"
    )
