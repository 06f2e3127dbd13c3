"""How many orders may be placed in an hour: 5 for a name, a number for each account (PLATFORM_ACME_ORDERS_PER_ACCOUNT),
and one for all (PLATFORM_ACME_ORDERS_PER_HOUR), which no single account is to use up.

Attempts are rows of their own, so that a name that is removed and comes back does not begin at zero.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet

from certificates.models import OrderAttempt

OF_NAME = 5
WINDOW = timedelta(hours=1)


def allowed_at(name: str, owner: str, now: datetime) -> datetime:
    """Return when the next order of a name may be placed; `now` if it may be at once."""
    recent = OrderAttempt.objects.filter(began_at__gt=now - WINDOW, began_at__lte=now)
    return max(
        now,
        _room_at(recent.filter(name=name), OF_NAME, now),
        _room_at(recent.filter(owner=owner), settings.ENV.acme_orders_per_account, now) if owner else now,
        _room_at(recent, settings.ENV.acme_orders_per_hour, now),
    )


def attempt_count(name: str, owner: str, now: datetime) -> None:
    """Count an order that is about to be placed. In the transaction, and under the lock, in which it was allowed."""
    OrderAttempt.objects.filter(began_at__lte=now - 2 * WINDOW).delete()
    OrderAttempt.objects.create(name=name, owner=owner, began_at=now)


def _room_at(recent: QuerySet[OrderAttempt], most: int, now: datetime) -> datetime:
    """Return when fewer than `most` of the attempts are in the window: once the one at that place has left it."""
    times = list(recent.order_by("-began_at").values_list("began_at", flat=True)[most - 1 : most])
    return times[0] + WINDOW if times else now
