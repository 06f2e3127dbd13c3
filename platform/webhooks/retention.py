"""Events, their deliveries and attempts are removed after 30 days, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from webhooks.models import Attempt, Delivery, DeliveryStatus, Event

KEPT_FOR = timedelta(days=30)
# An event has one delivery for each webhook of its account that wants it, ten at most, and these some ten attempts.
BATCH = 50
# The most batches of one run, which is every ten minutes: more than can be published in that time.
MOST_BATCHES = 400


def remove_old_events() -> int:
    """Remove events older than 30 days with all that belongs to them. Return how many.

    Each batch is a short transaction, which locks few rows, and a run that ends early has removed whole events. An
    event with a delivery that is pending, as after a redelivery, stays until that has ended.
    """
    removed = 0
    for _ in range(MOST_BATCHES):
        count = _remove_batch()
        removed += count
        if count < BATCH:
            break
    return removed


@transaction.atomic
def _remove_batch() -> int:
    """Remove a batch. The deliveries are locked, so that none is made pending again before it is removed."""
    pending = Delivery.objects.filter(event=OuterRef("pk"), status=DeliveryStatus.PENDING)
    old = Event.objects.filter(~Exists(pending), created_at__lt=timezone.now() - KEPT_FOR).order_by("created_at")
    events = list(old.values_list("pk", flat=True)[:BATCH])
    rows = Delivery.objects.select_for_update(of=("self",)).filter(event__in=events).order_by("pk")
    deliveries = list(rows.values_list("pk", "event_id", "status"))
    kept = {event for _, event, status in deliveries if status == DeliveryStatus.PENDING}
    for some in _chunks([key for key, event, _ in deliveries if event not in kept]):
        Attempt.objects.filter(delivery__in=some).delete()
        Delivery.objects.filter(pk__in=some).delete()
    removed = [key for key in events if key not in kept]
    Event.objects.filter(pk__in=removed).delete()
    return len(removed)


def _chunks(keys: list[str], size: int = 500) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
