"""Billing cycles: a charge belongs to the cycle that is current when it is made, whatever its tick.

Every pass locks the row of the charge position, and so does a process that seals a cycle, so that no pass adds to a
cycle of which something was reported.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from workspaces.models import BillingCycle, ChargePosition

CYCLE = ("cycle", "cycle_end")  # of the position
# A clock that is set back by more was wrong before: later charges have the times of the present clock.
SET_BACK = 3600


def current_cycle(position: ChargePosition, now: datetime) -> int:
    """Return the key of the cycle that current charges belong to. If the former cycle is over or sealed, a new one is
    made. The position's row must be locked; the caller saves its columns CYCLE.
    """
    size, seconds = settings.ENV.billing_seconds, int(now.timestamp())
    if position.cycle_end - seconds > size + SET_BACK:
        position.cycle, position.cycle_end = None, 0
    if position.cycle_id is not None and seconds < position.cycle_end:
        return position.cycle_id
    # If the clock was set back or the size was changed, the cycle begins where the last one ended.
    moment = max(seconds, position.cycle_end)
    begin = moment // size * size
    position.cycle = BillingCycle.objects.create(start=max(begin, position.cycle_end), end=begin + size)
    position.cycle_end = position.cycle.end
    return position.cycle.pk


def cycle_seal(position: ChargePosition, cycle: BillingCycle) -> None:
    """Seal a cycle: nothing is added to it from now on. The position's row must be locked. Idempotent."""
    if position.cycle_id == cycle.pk:
        position.cycle = None
        position.save(update_fields=["cycle"])
