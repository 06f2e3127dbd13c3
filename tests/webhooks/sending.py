"""Rows of the outbox for tests: subscriptions at a receiver, and events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import LazySettings
from django.db import transaction
from django.utils import timezone

from accounts.models import Account
from common.outbound_targets import outbound_targets
from tests.webhooks.outbox import subscribe
from tests.webhooks.receiver import Receiver
from webhooks.events import NewEvent, publish_events
from webhooks.models import Delivery, Subscription

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
# Nothing listens there.
NOWHERE = "http://127.0.0.1:1/hook"


@contextmanager
def permitted(settings: LazySettings, *receivers: Receiver) -> Iterator[None]:
    """The operator lists these receivers, and a place where nothing listens."""
    places = (*(f"127.0.0.1:{each.port}" for each in receivers), "127.0.0.1:1")
    settings.ENV = settings.ENV.model_copy(update={"private_receivers": places})
    outbound_targets.cache_clear()
    try:
        yield
    finally:
        outbound_targets.cache_clear()


def make_subscription(account: Account, url: str, **fields: Any) -> Subscription:
    """One whose last attempt delivered."""
    given = {"secret": SECRET, "last_triggered_at": timezone.now(), **fields}
    return subscribe(account, *given.pop("events", ["*"]), url=url, **given)


def publish(account: Account, count: int = 1, **data: Any) -> list[str]:
    """Events for all subscriptions of the account; the ids of the deliveries, in the order of the events."""
    before = set(Delivery.objects.values_list("pk", flat=True))
    with transaction.atomic():
        publish_events([NewEvent(account.pk, "", "", "vm.stopped", {"number": n, **data}) for n in range(count)])
    made = Delivery.objects.exclude(pk__in=before).order_by("event_id", "pk")
    return list(made.values_list("pk", flat=True))


def state(delivery: str) -> tuple[str, int, int | None]:
    row = Delivery.objects.get(pk=delivery)
    return row.status, row.attempts, row.last_status_code
