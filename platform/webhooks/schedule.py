"""When a delivery is attempted again."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from django.conf import settings
from django.db.models.functions import Now

from webhooks.models import DELIVERY_LEASE, Delivery, DeliveryStatus

_MINUTE, _HOUR = 60.0, 3600.0
# Before the third and later attempts; before the second one it is a setting. More than three days in all.
_LATER_WAITS = (5 * _MINUTE, 30 * _MINUTE, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))
ATTEMPTS = 2 + len(_LATER_WAITS)
# Only upwards: receivers that were down together are spread, and the last attempt never comes too early for an outage
# of three days.
JITTER = 0.2
LONGEST_RETRY_AFTER = _HOUR
# More than any of these.
LONGEST_WAIT = timedelta(seconds=max(_LATER_WAITS) * (1 + JITTER) + _HOUR)
_MOST_DIGITS = 12


def retry_wait(attempts: int, *, retry_after: float | None = None) -> float | None:
    """Return seconds from the end of an attempt to the next one; None after the last.

    `attempts`: how many were made. `retry_after`: what the receiver asked for in seconds; honoured up to an hour.
    """
    if attempts >= ATTEMPTS:
        return None
    planned = settings.ENV.webhook_retry_seconds if attempts == 1 else _LATER_WAITS[attempts - 2]
    stretch = random.uniform(1, 1 + JITTER)  # noqa: S311 - it spreads load, it keeps no secret
    asked = min((retry_after or 0.0) * stretch, LONGEST_RETRY_AFTER)
    return float(max(planned * stretch, asked))


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Return a `Retry-After` header, which is seconds or an HTTP date; None if it is absent or neither."""
    text = (value or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:_MOST_DIGITS])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())


def end_too_long_waits() -> int:
    """Make deliveries due that would wait for longer than any attempt does. Return how many.

    Their times were written before the clock was set back (`common.work.clock`).
    """
    late = Delivery.objects.filter(
        DELIVERY_LEASE.free(), status=DeliveryStatus.PENDING, attempts__gte=0, next_attempt_at__gt=Now() + LONGEST_WAIT
    )
    return late.update(next_attempt_at=Now())
