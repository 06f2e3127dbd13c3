"""Sums of charged records by hour, minute and billing cycle. Written in the transaction of the charge."""

from __future__ import annotations

from datetime import datetime, timedelta

from common.bulk_rows import rows_add, rows_insert
from common.times import EPOCH
from workspaces.charging.cycles import SET_BACK
from workspaces.charging.records import MICRO, SUMS, RecordSums
from workspaces.models import (
    ChargePosition,
    CycleUsage,
    LateRecord,
    NamespaceHour,
    NamespaceMinute,
    WorkspaceHour,
)

# What is charged later than so long after its tick counts as if it had been metered so long ago. A report of a time
# that ended ten minutes ago never changes: a minute more, in which the transaction commits.
LATE = timedelta(minutes=9)


def counted_from(position: ChargePosition, now: datetime) -> int:
    """The earliest time at which a record counts that is charged now, in microseconds. It does not go back where the
    clock does, unless that was far ahead.
    """
    earliest: int = (now - LATE - EPOCH) // timedelta(microseconds=1)
    back = position.counted_from - earliest
    return position.counted_from if 0 < back <= SET_BACK * MICRO else earliest


def sums_write(sums: RecordSums, cycle: int) -> None:
    """Add a batch to the sums of its hours and minutes, and of the cycle. One statement for each table."""
    rows_insert(LateRecord, ("record_id", "namespace_id", "counted_at"), sums.late)
    rows_add(WorkspaceHour, ("metered_id", "start"), SUMS, [(*key, *sums.hours[key]) for key in sorted(sums.hours)])
    minutes = [(*key, *sums.minutes[key]) for key in sorted(sums.minutes)]
    rows_add(NamespaceMinute, ("namespace_id", "start"), SUMS, minutes)
    rows_add(NamespaceHour, ("namespace_id", "start"), SUMS, [(*key, *each) for key, each in sums.namespace_hours()])
    used = [(cycle, metered, *each) for metered, each in sums.workspaces()]
    rows_add(CycleUsage, ("cycle_id", "metered_id"), SUMS, used)
