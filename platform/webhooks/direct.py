"""Events for a receiver that a request named itself, and that is no registered webhook.

Its row is a subscription that is in no list, counts for no limit and wants no events: it gets those alone that are
sent to it here. So its deliveries are claimed, signed, repeated and shared out as all others are. There is one row for
an address and what it was named by, so that what is sent to a receiver at once has the bounds of one webhook. Rows that
were not used for a day, and have nothing pending, are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from common.secrets_at_rest import keyed_hash
from webhooks.events import NewEvent, event_send_to
from webhooks.models import Delivery, DeliveryStatus, Subscription
from webhooks.subscriptions import live_subscriptions, subscription_discard

UNUSED_FOR = timedelta(days=1)
REMOVE_BATCH = 200


@dataclass(frozen=True, slots=True)
class DirectReceiver:
    """`host`: as `targets.required_host` returned it. `named_by`: an id of what the secret belongs to."""

    url: str
    host: str
    secret: str
    named_by: str


def send_direct_event(receiver: DirectReceiver, event: NewEvent) -> Delivery:
    """Write the event and its delivery in the caller's transaction. A receiver that had answered 410 is asked again."""
    return event_send_to(_subscription_of(receiver, event), event.type, event.data)


def _subscription_of(receiver: DirectReceiver, event: NewEvent) -> Subscription:
    """Return the subscription, locked, and made if it is missing. Its namespace and secret are those of the newest
    event.
    """
    wanted = {
        "namespace_id": event.namespace_id,
        "namespace_slug": event.namespace_slug,
        "secret": receiver.secret,
        "active": True,
        "disabled_reason": None,
    }
    found, made = Subscription.objects.select_for_update(of=("self",), no_key=True).get_or_create(
        account_id=event.account_id,
        direct_key=keyed_hash(f"{receiver.named_by} {receiver.url}"),
        defaults={**wanted, "url": receiver.url, "host": receiver.host, "events": []},
    )
    if not made:
        if not found.active:
            wanted["failing_since"] = None
        for name, value in wanted.items():
            setattr(found, name, value)
        found.save(update_fields=[*wanted, "updated_at"])
    return found


def delete_unused_receivers() -> int:
    """Delete a batch of receivers that nothing was sent to for a day. Return how many."""
    pending = Delivery.objects.filter(subscription=OuterRef("pk"), status=DeliveryStatus.PENDING)
    unused = Subscription.objects.filter(
        ~Exists(pending), direct_key__isnull=False, updated_at__lt=timezone.now() - UNUSED_FOR
    )
    return sum(map(_delete_unused, list(unused.order_by("updated_at")[:REMOVE_BATCH])))


@transaction.atomic
def _delete_unused(found: Subscription) -> bool:
    """Delete an unused subscription: row and deliveries go with those of deleted webhooks. One that was used since
    stays.
    """
    rows = live_subscriptions().select_for_update(of=("self",), no_key=True)
    stored = rows.filter(pk=found.pk, updated_at=found.updated_at).first()
    if stored is not None:
        subscription_discard(stored)
    return stored is not None
