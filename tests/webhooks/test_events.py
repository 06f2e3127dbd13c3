"""The outbox: which subscriptions get an event, in the transaction of its fact, and one event for a key."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.callers import Caller
from webhooks.events import NewEvent, events_publish
from webhooks.models import Delivery, DeliveryStatus, Event, Subscription

pytestmark = pytest.mark.django_db


def subscribe(caller: Caller, *events: str, **fields: object) -> Subscription:
    values = {"url": "https://hooks.example.com/", "host": "hooks.example.com", "secret": "whsec_c2VjcmV0", **fields}
    return Subscription.objects.create(account=caller.account, events=list(events) or ["*"], **values)


def new_event(caller: Caller, type: str = "vm.stopped", **fields: object) -> NewEvent:
    values = {"namespace_id": "ns_one", "namespace_slug": "one", "data": {"workspace_id": "ws_1"}, **fields}
    return NewEvent(caller.account.pk, type=type, **values)  # type: ignore[arg-type]


def published(*events: NewEvent) -> int:
    with transaction.atomic():
        return events_publish(events)


def test_an_event_goes_to_those_who_want_it(api: Caller, stranger: Caller) -> None:
    wanted = [subscribe(api), subscribe(api, "vm.stopped", "vm.lost"), subscribe(api, namespace_id="ns_one")]
    subscribe(api, "vm.lost")
    subscribe(api, namespace_id="ns_two")
    subscribe(api, active=False)
    subscribe(stranger)
    assert published(new_event(api)) == 1
    event = Event.objects.get()
    assert (event.type, event.namespace_slug, event.data) == ("vm.stopped", "one", {"workspace_id": "ws_1"})
    rows = Delivery.objects.all()
    assert {row.subscription_id for row in rows} == {each.pk for each in wanted}
    assert {(row.event_id, row.status, row.next_attempt_at) for row in rows} == {
        (event.pk, DeliveryStatus.PENDING, event.created_at)
    }


def test_what_is_not_wanted_is_not_written(api: Caller) -> None:
    subscribe(api, "vm.lost")
    assert published(new_event(api)) == 0
    assert not Event.objects.exists()


def test_one_key_is_one_event(api: Caller, stranger: Caller) -> None:
    subscribe(api)
    subscribe(stranger)
    assert published(new_event(api, key="usage:1"), new_event(api, key="usage:2")) == 2
    assert published(new_event(api, key="usage:2"), new_event(api, key="usage:3"), new_event(api)) == 2
    assert published(new_event(stranger, key="usage:1")) == 1
    assert Event.objects.count() == Delivery.objects.count() == 5


def test_an_unknown_event_is_refused(api: Caller) -> None:
    with pytest.raises(ValueError, match="no event"):
        published(new_event(api, "vm.burnt"))
