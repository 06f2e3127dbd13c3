"""What becomes of the deliveries of a subscription that was switched off."""

from __future__ import annotations

from django.utils import timezone

from webhooks.leases import unleased
from webhooks.models import Delivery, DeliveryStatus

BATCH = 1000  # deliveries of one statement, some 10 ms


def deliveries_disable(subscription_id: str) -> int:
    """Disable pending deliveries of a subscription that is off, BATCH at most. Returns how many. Idempotent.

    The process `hooks` finds the others. One that is being attempted is left to the end of its attempt.
    """
    pending = Delivery.objects.filter(
        unleased(timezone.now()),
        subscription=subscription_id,
        subscription__active=False,
        status=DeliveryStatus.PENDING,
    )
    ids = list(pending.order_by("next_attempt_at").values_list("pk", flat=True)[:BATCH])
    return Delivery.objects.filter(pk__in=ids, status=DeliveryStatus.PENDING).update(
        status=DeliveryStatus.DISABLED, next_attempt_at=None, claim="", lease_until=None
    )
