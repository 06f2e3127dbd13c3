"""Sending again: one delivery, or all that failed since a time."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from common.errors import Conflict
from tests.callers import Caller
from tests.webhooks.receiver import Receiver, Sending
from tests.webhooks.sending import make_subscription, publish
from webhooks import redeliver
from webhooks.models import Attempt, Delivery, DeliveryStatus, Event, Subscription

pytestmark = pytest.mark.django_db


def fail(keys: list[str]) -> None:
    Delivery.objects.filter(pk__in=keys).update(
        status=DeliveryStatus.FAILED, next_attempt_at=None, attempts=10, last_status_code=500
    )


def test_a_delivered_event_is_sent_again_with_its_id(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    hooks.settle()
    again = redeliver.delivery_redeliver(Delivery.objects.get())
    assert (again.pk, again.status, again.attempts) == (key, "pending", 0)
    assert again.delivered_at is None
    hooks.settle()
    assert receiver.event_ids() == [Event.objects.get().pk] * 2
    assert len({sent.body for sent in receiver.received}) == 1
    assert Delivery.objects.get().status == "delivered"
    assert Attempt.objects.count() == 2


@pytest.mark.parametrize("status", [DeliveryStatus.FAILED, DeliveryStatus.DISABLED])
def test_what_was_given_up_is_sent_again_with_all_its_attempts(
    api: Caller, receiver: Receiver, hooks: Sending, status: DeliveryStatus
) -> None:
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    Delivery.objects.update(status=status, next_attempt_at=None, attempts=10)
    redeliver.delivery_redeliver(Delivery.objects.get())
    hooks.settle()
    assert (Delivery.objects.get().status, Delivery.objects.get().attempts) == ("delivered", 1)
    assert len(receiver.received) == 1
    assert Delivery.objects.get().pk == key


def test_a_second_call_changes_nothing(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    hooks.settle()
    stale = Delivery.objects.get()
    redeliver.delivery_redeliver(Delivery.objects.get())
    first = Delivery.objects.get().next_attempt_at
    redeliver.delivery_redeliver(stale)
    assert Delivery.objects.get().next_attempt_at == first
    hooks.run_pass()
    redeliver.delivery_redeliver(Delivery.objects.get())
    hooks.settle()
    assert len(receiver.received) == 2, "an attempt that is being made is not taken from its process"


def test_a_subscription_that_is_off_gets_nothing_again(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    subscription = make_subscription(api.account, receiver.url)
    keys = publish(api.account, 2)
    fail(keys)
    Subscription.objects.update(active=False)
    with pytest.raises(Conflict):
        redeliver.delivery_redeliver(Delivery.objects.get(pk=keys[0]))
    with pytest.raises(Conflict):
        redeliver.failed_redeliver(subscription, since=timezone.now() - timedelta(days=1))
    assert set(Delivery.objects.values_list("status", flat=True)) == {"failed"}


def test_all_that_failed_since_a_time(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    subscription = make_subscription(api.account, receiver.url)
    other = make_subscription(api.account, receiver.url + "/other")
    publish(api.account, 5)
    mine = list(Delivery.objects.filter(subscription=subscription).order_by("pk"))
    fail([row.pk for row in mine[:4]] + [row.pk for row in Delivery.objects.filter(subscription=other)])
    Delivery.objects.filter(pk=mine[0].pk).update(created_at=timezone.now() - timedelta(days=2))
    since = timezone.now() - timedelta(days=1)
    assert redeliver.failed_redeliver(subscription, since=since) == 3
    assert redeliver.failed_redeliver(subscription, since=since) == 0
    hooks.settle()
    assert {sent.path for sent in receiver.received} == {"/hook"}
    assert len(receiver.received) == 4, "the fifth was pending"
    assert Delivery.objects.get(pk=mine[0].pk).status == "failed"
    assert set(Delivery.objects.filter(subscription=other).values_list("status", flat=True)) == {"failed"}


def test_one_call_has_bounded_work_and_the_next_goes_on(
    api: Caller, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redeliver, "MOST_OF_REQUEST", 4)
    subscription = make_subscription(api.account, receiver.url)
    keys = sorted(publish(api.account, 10))
    fail(keys)
    since = timezone.now() - timedelta(days=1)
    with CaptureQueriesContext(connection) as asked:
        assert redeliver.failed_redeliver(subscription, since=since) == 4
    assert len(asked) <= 5
    pending = Delivery.objects.filter(status=DeliveryStatus.PENDING).values_list("pk", flat=True)
    assert sorted(pending) == keys[:4], "the oldest first"
    assert [redeliver.failed_redeliver(subscription, since=since) for _ in range(3)] == [4, 2, 0]


@pytest.mark.django_db(transaction=True)
def test_of_calls_at_once_one_makes_it_due(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    subscription = make_subscription(api.account, receiver.url)
    fail(publish(api.account, 20))
    counts: list[int] = []

    def call() -> None:
        counts.append(redeliver.failed_redeliver(subscription, since=timezone.now() - timedelta(days=1)))
        connections.close_all()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == [0, 0, 0, 20]
    hooks.settle()
    assert len(receiver.received) == 20
