"""Position at which a check of the ledger ended without findings, and the rows that the next check reads after it.

Both are computed inside the snapshot of the check.
"""

from __future__ import annotations

from django.db.models import Max, Min, QuerySet

from common.exact_sums import exact_sum
from credits.amounts import MAX_CREDITS, amount_of_stored
from workspaces.charging.position import read_position
from workspaces.charging.records import HOUR, MICRO
from workspaces.charging.sums_check import CheckWindow
from workspaces.models import BillingCycle, ChargePosition, CheckPosition, CycleUsage, LateRecord, MeterRecord

ONLY = 1  # its key


def check_position_read() -> CheckPosition | None:
    """Return the position of the last check without findings, or None if there was no such check yet."""
    return CheckPosition.objects.filter(pk=ONLY).first()


def check_window(since: CheckPosition) -> CheckWindow | None:
    """Return the window to compare after a position.

    Return None if there is no such window: something new counts in an hour that was over, for example because a clock
    was far ahead.
    """
    position = read_position()
    earliest = _first_hour(since.record_id, position)
    if position.record_id < since.record_id or earliest < since.begin:
        return None
    return CheckWindow(since.begin, since.hour_record_id, since.record_id)


def check_position_next(since: CheckPosition | None) -> CheckPosition | None:
    """Return the position at which this check ends, or None if no column can hold the open amount."""
    position = read_position()
    begin = position.counted_from // MICRO // HOUR * HOUR
    after = since.hour_record_id if since and since.begin <= begin else position.first_record_id
    unclosed = BillingCycle.objects.filter(closed_at=None).aggregate(first=Min("pk"))["first"]
    newest = BillingCycle.objects.aggregate(last=Max("pk"))["last"] or 0
    cycle = newest if unclosed is None else unclosed - 1
    reported = BillingCycle.objects.filter(pk__gt=cycle).aggregate(sum=exact_sum("credits"))["sum"]
    waiting = CycleUsage.objects.aggregate(sum=exact_sum("credits"))["sum"]
    if amount_of_stored(reported + waiting) > MAX_CREDITS:
        return None
    return CheckPosition(
        pk=ONLY,
        record_id=position.record_id,
        begin=begin,
        hour_record_id=_before_hour(after, begin, position),
        cycle_number=cycle,
        open_credits=amount_of_stored(reported + waiting),
    )


def _charged(after: int, position: ChargePosition) -> QuerySet[MeterRecord]:
    return MeterRecord.objects.filter(id__gt=after, id__lte=position.record_id).order_by()


def _late(after: int, position: ChargePosition) -> QuerySet[LateRecord]:
    return LateRecord.objects.filter(record_id__gt=after, record_id__lte=position.record_id)


def _first_hour(after: int, position: ChargePosition) -> float:
    """Return the earliest hour in which a record after `after` counts; infinite if there is none."""
    tick = _charged(after, position).filter(laterecord=None).aggregate(first=Min("tick"))["first"]
    late = _late(after, position).aggregate(first=Min("counted_at"))["first"]
    found = [moment // MICRO // HOUR * HOUR for moment in (tick, late) if moment is not None]
    return min(found, default=float("inf"))


def _before_hour(after: int, begin: int, position: ChargePosition) -> int:
    """Return the last record before the first one that counts in that hour or later."""
    in_time = _charged(after, position).filter(tick__gte=begin * MICRO).aggregate(first=Min("id"))["first"]
    late = _late(after, position).filter(counted_at__gte=begin * MICRO).aggregate(first=Min("record_id"))["first"]
    return min([number for number in (in_time, late) if number is not None], default=position.record_id + 1) - 1
