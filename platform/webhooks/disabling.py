"""Switching a subscription off because of its receiver, and what becomes of the deliveries of one that is off."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from webhooks.audit import record_audit
from webhooks.models import DELIVERY_LEASE, Delivery, DeliveryStatus, DisabledReason, Subscription

ACTOR = "system"
DESCRIPTIONS = {
    DisabledReason.GONE: "The receiver responded with 410.",
    DisabledReason.FAILING: "Nothing was delivered for five days.",
}
BATCH = 1000  # deliveries of one statement, some 10 ms


def subscription_switch_off(subscription: Subscription, reason: DisabledReason) -> bool:
    """Switch it off with an audit entry, in the caller's transaction. False if it is off already."""
    changed = Subscription.objects.filter(pk=subscription.pk, active=True).update(
        active=False, disabled_reason=reason, updated_at=timezone.now()
    )
    if not changed:
        return False
    disable_deliveries(subscription.pk)
    record_audit(subscription, "webhook_disabled", DESCRIPTIONS[reason], actor=ACTOR)
    return True


def settle_switched_off() -> int:
    """Disable what is pending of all subscriptions that are off, a batch of each. Return how many.

    `hooks` does it for those with something due; of the others a webhook with very many deliveries has some left.
    """
    pending = Delivery.objects.filter(subscription=OuterRef("pk"), status=DeliveryStatus.PENDING)
    off = Subscription.objects.filter(Exists(pending), active=False)
    return sum(map(disable_deliveries, list(off.values_list("pk", flat=True))))


def disable_deliveries(subscription_id: str) -> int:
    """Disable pending deliveries of a subscription that is off, BATCH at most. Return how many. Idempotent.

    The process `hooks` finds the others. One that is being attempted is left to the end of its attempt, and one that
    another transaction has locked to the next call.
    """
    with transaction.atomic():
        return _disable_batch(subscription_id)


def _disable_batch(subscription_id: str) -> int:
    pending = Delivery.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).filter(
        DELIVERY_LEASE.free(),
        subscription=subscription_id,
        subscription__active=False,
        status=DeliveryStatus.PENDING,
    )
    ids = list(pending.order_by("next_attempt_at").values_list("pk", flat=True)[:BATCH])
    return Delivery.objects.filter(pk__in=ids, status=DeliveryStatus.PENDING).update(
        status=DeliveryStatus.DISABLED, next_attempt_at=None, claim="", lease_until=None
    )
