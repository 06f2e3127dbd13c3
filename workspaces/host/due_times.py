"""Correction of the due times of the sweep after the clock was set back.

A due time is the time at which it was written plus the length that a setting gives. If a due time is later from now
than that length, a clock that was ahead wrote it, and it would come later by as much as the clock was set back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models import DateTimeField, DurationField, Expression, ExpressionWrapper, F, Q, Value
from django.utils import timezone

from workspaces.host.restarts import LONGEST_DELAY
from workspaces.rows import update_all

# Clocks of several machines differ by less than this.
TOLERANCE = timedelta(seconds=5)
# A clock that is behind after a boot is corrected within this time; until then due times of the future may be right,
# and the end of a TTL that came too early would be the end of a disk.
SETTLED_SECONDS = 600.0
SECOND = timedelta(seconds=1)
LENGTHS: dict[str, Callable[[], Expression]] = {
    "ttl_expires_at": lambda: _seconds("ttl_length"),
    "memory_expires_at": lambda: _seconds("stop_after"),
    "restart_due_at": lambda: Value(timedelta(seconds=LONGEST_DELAY), output_field=DurationField()),
}


def due_times_correct() -> int:
    """Rewrite due times that no rule can give, as if they were set now. Return how many; none soon after a boot.

    An idle time is looked at in the next sweep: it ends a length after the last use, and a use may have its own end.
    """
    if time.clock_gettime(time.CLOCK_BOOTTIME) < SETTLED_SECONDS:
        return 0
    now = timezone.now()
    corrected = update_all(_is_beyond("idle_due_at", _seconds("suspend_after"), now), idle_due_at=now)
    for column, length in LENGTHS.items():
        corrected += update_all(_is_beyond(column, length(), now), **{column: _after(now, length())})
    return corrected


def _seconds(column: str) -> Expression:
    return ExpressionWrapper(F(column) * Value(SECOND, output_field=DurationField()), output_field=DurationField())


def _after(now: datetime, length: Expression) -> Expression:
    return ExpressionWrapper(Value(now, output_field=DateTimeField()) + length, output_field=DateTimeField())


def _is_beyond(column: str, length: Expression, now: datetime) -> Q:
    """Return the condition of a due time that is too late. Partial indexes contain the rows that have such a time."""
    return Q(**{f"{column}__gt": _after(now + TOLERANCE, length)})
