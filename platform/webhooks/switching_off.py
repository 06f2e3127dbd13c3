"""Switching a subscription off because of its receiver, and what becomes of its deliveries."""

from __future__ import annotations

import logging

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from webhooks.claims import unleased
from webhooks.models import AuditEntry, Delivery, DeliveryStatus, DisabledReason, Subscription

logger = logging.getLogger(__name__)

ACTOR = "system"
DESCRIPTIONS = {
    DisabledReason.GONE: "The receiver responded with 410.",
    DisabledReason.FAILING: "Nothing was delivered for five days.",
}
BATCH = 500  # deliveries of one statement


def subscription_switch_off(subscription: Subscription, reason: DisabledReason) -> bool:
    """Switch it off with an audit entry, in the caller's transaction. False where it is off already.

    The first of its pending deliveries are disabled at once; `hooks` disables the others, a batch at a time.
    """
    changed = Subscription.objects.filter(pk=subscription.pk, active=True).update(
        active=False, disabled_reason=reason, updated_at=timezone.now()
    )
    if not changed:
        return False
    AuditEntry.objects.create(
        account_id=subscription.account_id,
        subscription_id=subscription.pk,
        action="disabled",
        actor=ACTOR,
        description=DESCRIPTIONS[reason],
    )
    deliveries_disable(subscription.pk)
    transaction.on_commit(lambda: logger.info("%s is switched off: %s", subscription.pk, reason))
    return True


def deliveries_disable(subscription_id: str) -> int:
    """Disable pending deliveries of a subscription that is off, BATCH at most. Returns how many.

    One that is being attempted is left: what comes of it ends it. Idempotent.
    """
    pending = Delivery.objects.filter(
        unleased(timezone.now()), subscription=subscription_id, status=DeliveryStatus.PENDING
    )
    ids = list(pending.order_by("next_attempt_at").values_list("pk", flat=True)[:BATCH])
    off = Q(subscription__active=False)
    return Delivery.objects.filter(off, pk__in=ids, status=DeliveryStatus.PENDING).update(
        status=DeliveryStatus.DISABLED, next_attempt_at=None, claim="", lease_until=None
    )
