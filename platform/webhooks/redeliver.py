"""Sending again what was delivered, given up or disabled: the same event, with the same id."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from common.errors import Conflict
from webhooks.models import Delivery, DeliveryStatus, Subscription
from webhooks.wakeups import HOOKS_WAKEUP

# The most deliveries of one request; the next request finds the rest.
MOST_OF_REQUEST = 1000


@transaction.atomic
def delivery_redeliver(delivery: Delivery) -> Delivery:
    """Make a delivery due now, with all its attempts ahead of it. Idempotent: one that is pending stays as it is.

    Raise Conflict while its subscription is switched off; nothing has changed then.
    """
    _require_active(delivery.subscription_id)
    _make_due([delivery.pk], [DeliveryStatus.DELIVERED, DeliveryStatus.FAILED, DeliveryStatus.DISABLED])
    delivery.refresh_from_db()
    return delivery


@transaction.atomic
def failed_redeliver(subscription: Subscription, *, since: datetime) -> int:
    """Make the failed deliveries of events since that time due now, the oldest first. Return how many.

    MOST_OF_REQUEST at most. As many returned says that there may be more, which another call finds: those of this one
    are not failed any more. Raise Conflict while the subscription is switched off.
    """
    _require_active(subscription.pk)
    failed = Delivery.objects.filter(
        subscription=subscription, status=DeliveryStatus.FAILED, created_at__gte=since
    ).order_by("pk")
    return _make_due(list(failed.values_list("pk", flat=True)[:MOST_OF_REQUEST]), [DeliveryStatus.FAILED])


def _require_active(subscription_id: str) -> None:
    """Require an active subscription, locked, so that it is not switched off before the caller commits."""
    rows = Subscription.objects.select_for_update(of=("self",), no_key=True).filter(pk=subscription_id, active=True)
    if not rows.values_list("pk", flat=True).first():
        raise Conflict("The webhook is switched off; switch it on first.")


def _make_due(ids: list[str], of: list[DeliveryStatus]) -> int:
    """Make a delivery due, from these states only: if two calls come at once, the second changes nothing."""
    changed = Delivery.objects.filter(pk__in=ids, status__in=of).update(
        status=DeliveryStatus.PENDING,
        attempts=0,
        next_attempt_at=timezone.now(),
        claim="",
        lease_until=None,
        delivered_at=None,
    )
    if changed:
        HOOKS_WAKEUP.send_on_commit()
    return changed
