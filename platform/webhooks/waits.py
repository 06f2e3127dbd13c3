"""Waits of deliveries that were written before the clock was set back (`common.work.clock`)."""

from __future__ import annotations

from django.db.models.functions import Now

from webhooks.models import DELIVERY_LEASE, Delivery, DeliveryStatus
from webhooks.schedule import LONGEST_WAIT


def end_too_long_waits() -> int:
    """Make deliveries due that would wait for longer than any attempt does. Return how many."""
    late = Delivery.objects.filter(
        DELIVERY_LEASE.free(), status=DeliveryStatus.PENDING, attempts__gte=0, next_attempt_at__gt=Now() + LONGEST_WAIT
    )
    return late.update(next_attempt_at=Now())
