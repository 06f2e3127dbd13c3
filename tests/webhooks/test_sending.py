"""Sending what is due: what receivers get, and what is written of it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone
from standardwebhooks import Webhook

from tests.callers import Caller
from tests.webhooks.receiver import Receiver, Sending, pass_time, receiving, replies
from tests.webhooks.sending import NOWHERE, SECRET, make_subscription, publish, state
from webhooks import disabling
from webhooks.models import Attempt, AuditEntry, Delivery, DeliveryStatus, DisabledReason, Event, Subscription

pytestmark = pytest.mark.django_db


def test_a_delivery_is_sent_once_and_noted(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    subscription = make_subscription(api.account, receiver.url)
    (key,) = publish(api.account, name="Zoë")
    hooks.settle()
    assert state(key) == ("delivered", 1, 204)
    row = Delivery.objects.get(pk=key)
    assert (row.claim, row.lease_until, row.next_attempt_at, row.last_error) == ("", None, None, "")
    assert row.delivered_at is not None
    attempt = Attempt.objects.get()
    assert (attempt.delivery_id, attempt.number, attempt.status_code, attempt.error) == (key, 1, 204, "")
    subscription.refresh_from_db()
    assert (subscription.last_status_code, subscription.failing_since) == (204, None)
    assert subscription.last_triggered_at is not None
    assert len(receiver.received) == 1


def test_what_is_sent(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account, name="Zoë", used=1.5)
    hooks.settle()
    (sent,) = receiver.received
    event = Event.objects.get()
    assert json.loads(sent.body) == {
        "id": event.pk,
        "type": "vm.stopped",
        "event": "vm.stopped",
        "timestamp": event.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "namespace": None,
        "data": {"number": 0, "name": "Zoë", "used": 1.5},
    }
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["webhook-id"] == sent.headers["x-webhook-id"] == event.pk
    assert Webhook(SECRET).verify(sent.body, dict(sent.headers))["id"] == event.pk


def test_every_attempt_has_the_same_bytes_and_a_signature_of_its_own_time(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    receiver.respond = replies(500, 500, 200)
    make_subscription(api.account, receiver.url)
    publish(api.account, 1, deep={"b": [1, 2.5, None], "a": "ü"})
    for _ in range(3):
        hooks.settle()
        Delivery.objects.filter(status=DeliveryStatus.PENDING).update(next_attempt_at=timezone.now())
    assert len({sent.body for sent in receiver.received}) == 1
    assert len(receiver.received) == 3
    for sent in receiver.received:
        assert Webhook(SECRET).verify(sent.body, dict(sent.headers))


def test_both_secrets_sign_until_the_grace_of_a_rotation_ends(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    former = "whsec_" + "Zm9ybWVy"
    until_then = timezone.now() + timedelta(hours=1)
    make_subscription(api.account, receiver.url, former_secret=former, former_secret_until=until_then)
    publish(api.account)
    hooks.settle()
    pass_time(timedelta(hours=2))
    publish(api.account)
    hooks.settle()
    during, after = receiver.received
    for secret in (SECRET, former):
        assert Webhook(secret).verify(during.body, dict(during.headers))
    assert len(after.headers["webhook-signature"].split()) == 1


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_2xx_is_delivered(api: Caller, receiver: Receiver, hooks: Sending, status: int) -> None:
    receiver.respond = replies(status)
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    hooks.settle()
    assert state(key) == ("delivered", 1, status)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 304, 400, 401, 404, 409, 429, 500, 503])
def test_nothing_else_is_delivered_and_no_redirect_followed(
    api: Caller, receiver: Receiver, hooks: Sending, status: int
) -> None:
    receiver.respond = replies(status, Location=receiver.url + "/elsewhere")
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    hooks.settle()
    assert state(key) == ("pending", 1, status)
    assert [sent.path for sent in receiver.received] == ["/hook"]
    row = Delivery.objects.get(pk=key)
    assert row.last_error == f"The receiver responded with status {status}."
    assert row.next_attempt_at is not None
    assert 4 < (row.next_attempt_at - timezone.now()).total_seconds() <= 6
    assert Attempt.objects.get().error == ""


def test_a_receiver_that_is_not_there_is_tried_again(
    api: Caller, receiver: Receiver, hooks: Sending, settings: LazySettings
) -> None:
    subscription = make_subscription(api.account, NOWHERE)
    (key,) = publish(api.account)
    hooks.settle()
    row = Delivery.objects.get(pk=key)
    assert (row.status, row.attempts, row.last_status_code) == ("pending", 1, None)
    assert row.last_error == Attempt.objects.get().error == "The receiver could not be reached."
    subscription.refresh_from_db()
    assert subscription.failing_since is not None
    assert subscription.last_status_code is None


def test_a_place_that_the_operator_does_not_list_gets_nothing(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    with receiving() as unlisted:
        make_subscription(api.account, unlisted.url)
        (key,) = publish(api.account)
        hooks.settle()
        assert unlisted.received == []
    assert state(key) == ("pending", 1, None)


def test_after_ten_attempts_it_has_failed(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    receiver.respond = replies(500)
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    for _ in range(12):
        hooks.settle()
        pass_time(timedelta(hours=1))
        Delivery.objects.filter(status=DeliveryStatus.PENDING).update(next_attempt_at=timezone.now())
    assert state(key) == ("failed", 10, 500)
    assert len(receiver.received) == 10
    assert sorted(Attempt.objects.values_list("number", flat=True)) == list(range(1, 11))


def test_a_receiver_that_asks_for_a_wait_gets_it(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    receiver.respond = replies(429, Retry_After="1000")
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    hooks.settle()
    row = Delivery.objects.get(pk=key)
    assert row.next_attempt_at is not None
    assert 990 < (row.next_attempt_at - timezone.now()).total_seconds() <= 1200


def test_410_switches_the_subscription_off(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    receiver.respond = replies(410)
    subscription = make_subscription(api.account, receiver.url)
    other = make_subscription(api.account, receiver.url + "/other", events=["vm.lost"])
    keys = publish(api.account, 30)
    hooks.settle()
    subscription.refresh_from_db()
    assert (subscription.active, subscription.disabled_reason) == (False, DisabledReason.GONE)
    assert {state(key)[0] for key in keys} == {"disabled"}
    assert len(receiver.received) <= 4
    assert AuditEntry.objects.filter(subscription_id=subscription.pk).count() == 1
    assert Subscription.objects.get(pk=other.pk).active


def test_five_days_without_a_delivery_switch_it_off(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    receiver.respond = replies(500)
    subscription = make_subscription(api.account, receiver.url)
    for _ in range(5):
        publish(api.account)
        hooks.settle()
        pass_time(timedelta(days=1))
        subscription.refresh_from_db()
        assert subscription.active
    publish(api.account, 3)
    hooks.settle()
    subscription.refresh_from_db()
    assert (subscription.active, subscription.disabled_reason) == (False, DisabledReason.FAILING)
    assert not Delivery.objects.filter(status=DeliveryStatus.PENDING).exists()
    assert AuditEntry.objects.filter(subscription_id=subscription.pk).count() == 1


def test_one_delivery_within_five_days_keeps_it_on(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    receiver.respond = replies(500)
    subscription = make_subscription(api.account, receiver.url)
    publish(api.account)
    hooks.settle()
    pass_time(timedelta(days=4, hours=23))
    receiver.respond = replies(200)
    hooks.settle()
    receiver.respond = replies(500)
    publish(api.account)
    hooks.settle()
    subscription.refresh_from_db()
    assert subscription.active
    pass_time(timedelta(days=2))
    hooks.settle()
    subscription.refresh_from_db()
    assert subscription.active


def test_a_subscription_that_is_off_gets_nothing_and_what_waits_is_disabled(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    subscription = make_subscription(api.account, receiver.url)
    keys = publish(api.account, 3)
    Delivery.objects.filter(pk=keys[0]).update(next_attempt_at=timezone.now() + timedelta(hours=20))
    Subscription.objects.filter(pk=subscription.pk).update(active=False)
    hooks.settle()
    assert receiver.received == []
    assert {state(key)[0] for key in keys} == {"disabled"}


def test_very_many_pending_are_disabled_a_batch_at_a_time(
    api: Caller, receiver: Receiver, hooks: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disabling, "BATCH", 5)
    receiver.respond = replies(410)
    subscription = make_subscription(api.account, receiver.url)
    publish(api.account, 20)
    later = timezone.now() + timedelta(hours=3)
    Delivery.objects.filter(pk__in=list(Delivery.objects.values_list("pk", flat=True)[4:])).update(
        next_attempt_at=later
    )
    hooks.settle()
    subscription.refresh_from_db()
    assert not subscription.active
    assert Delivery.objects.filter(status=DeliveryStatus.PENDING).exists()
    while disabling.settle_switched_off():
        pass
    assert set(Delivery.objects.values_list("status", flat=True)) == {"disabled"}
