"""Sums of charged records by hour, minute, tick and billing cycle. Written in the transaction of the charge."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from common.bulk_rows import Row, add_rows, rows_insert
from common.times import EPOCH
from workspaces.charging.cycles import SET_BACK
from workspaces.charging.records import HOUR, MICRO, MINUTE, SUMS, RecordSums, Sums
from workspaces.models import (
    ChargePosition,
    CycleUsage,
    LateRecord,
    NamespaceHour,
    NamespaceMinute,
    NamespaceTick,
    WorkspaceHour,
)

# A record that is charged later than this after its tick counts as if it had been metered this long ago. A report of a
# time that ended ten minutes ago never changes: that leaves a minute in which the transaction commits. If a transaction
# takes longer, such a report waits for it (`finished`).
LATE = timedelta(minutes=9)


def counted_from(position: ChargePosition, now: datetime) -> int:
    """Return the earliest time, in microseconds, at which a record that is charged now counts. It does not go back with
    the clock, unless the clock was far ahead.
    """
    earliest: int = (now - LATE - EPOCH) // timedelta(microseconds=1)
    back = position.counted_from - earliest
    return position.counted_from if 0 < back <= SET_BACK * MICRO else earliest


def write_sums(sums: RecordSums, cycle: int) -> None:
    """Add a batch to the sums of its hours, minutes and ticks, and of the cycle. One statement for each table."""
    rows_insert(LateRecord, ("record_id", "namespace_id", "counted_at"), sums.late)
    used = {(cycle, metered): each for metered, each in sums.workspaces().items()}
    add_rows(WorkspaceHour, ("metered_id", "start"), SUMS, _rows(sums.hours))
    add_rows(NamespaceTick, ("namespace_id", "tick"), SUMS, _rows(sums.ticks))
    add_rows(NamespaceMinute, ("namespace_id", "start"), SUMS, _rows(sums.namespace_sums(MINUTE)))
    add_rows(NamespaceHour, ("namespace_id", "start"), SUMS, _rows(sums.namespace_sums(HOUR)))
    add_rows(CycleUsage, ("cycle_id", "metered_id"), SUMS, _rows(used))


def _rows(sums: Mapping[Any, Sums]) -> list[Row]:
    """Return the rows in the order of their keys, in which they are locked."""
    return [(*key, *sums[key]) for key in sorted(sums)]
