"""Billing cycles: what is charged belongs to the one that is current then, whatever its tick.

The row of the charge position is locked by every pass and by what seals a cycle, so that no pass adds to a cycle of
which something was reported.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from workspaces.models import BillingCycle, ChargePosition

CYCLE = ("cycle", "cycle_end")  # of the position
# A clock that is set back by more was wrong before: what follows has the times of the clock as it is.
SET_BACK = 3600


def current_cycle(position: ChargePosition, now: datetime) -> int:
    """The key of the cycle of what is charged now, made where the former one is over or sealed. The position's row is
    locked; the caller saves CYCLE of it.
    """
    size, seconds = settings.ENV.billing_seconds, int(now.timestamp())
    if position.cycle_end - seconds > size + SET_BACK:
        position.cycle, position.cycle_end = None, 0
    if position.cycle_id is not None and seconds < position.cycle_end:
        return position.cycle_id
    # After a clock that was set back, and where the size was changed, it begins where the last one ended.
    moment = max(seconds, position.cycle_end)
    begin = moment // size * size
    position.cycle = BillingCycle.objects.create(start=max(begin, position.cycle_end), end=begin + size)
    position.cycle_end = position.cycle.end
    return position.cycle.pk


def cycle_seal(position: ChargePosition, cycle: BillingCycle) -> None:
    """Nothing is added to the cycle from now on. The position's row is locked. Idempotent."""
    if position.cycle_id == cycle.pk:
        position.cycle = None
        position.save(update_fields=["cycle"])
