"""Sending what is due: what receivers get, what is written, and that none of them delays another."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from standardwebhooks import Webhook

from tests.callers import Caller
from tests.webhooks.receiver import Received, Receiver, Reply, Sending, pass_time, receiving, until
from tests.webhooks.sending import NOWHERE, SECRET, make_subscription, permitted, publish
from webhooks import claims, disabling, outcomes
from webhooks.attempts import ClaimedDelivery, Outcome
from webhooks.leases import LEASE
from webhooks.models import Attempt, AuditEntry, Delivery, DeliveryStatus, DisabledReason, Event, Subscription
from webhooks.sharing import InFlight

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(settings: LazySettings) -> Iterator[Receiver]:
    with receiving() as made, permitted(settings, made):
        yield made


@pytest.fixture
def hooks() -> Iterator[Sending]:
    made = Sending()
    yield made
    made.close()


def replies(*statuses: int, **headers: str) -> Callable[[Received], Reply]:
    """These one after the other, the last one for ever."""
    left = list(statuses)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: Reply(left.pop(0) if len(left) > 1 else left[0], named)


def waiting_for(release: threading.Event) -> Callable[[Received], Reply]:
    """No reply until then."""
    return lambda _: Reply(204 if release.wait(15) else 500)


def state(delivery: str) -> tuple[str, int, int | None]:
    row = Delivery.objects.get(pk=delivery)
    return row.status, row.attempts, row.last_status_code


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
    assert row.last_error == Attempt.objects.get().error == "The receiver could not be connected to."
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
    while disabling.switched_off_settle():
        pass
    assert set(Delivery.objects.values_list("status", flat=True)) == {"disabled"}


# Death, leases, late results


def test_a_claim_is_taken_once(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account, 10)
    first, second = claim(), claim()
    assert len(first) == 4
    assert second == [], "four are in flight, whichever process has them"


def claim() -> list[ClaimedDelivery]:
    """What a process claims that has nothing in flight."""
    due, _ = claims.due_subscriptions(timezone.now())
    return claims.deliveries_claim(due, InFlight(32))


def test_what_a_dead_process_had_claimed_is_sent_when_its_leases_end(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    make_subscription(api.account, receiver.url)
    keys = publish(api.account, 6)
    lost = claim()
    hooks.settle()
    assert receiver.received == [], "four of the subscription are in flight still"
    pass_time(LEASE)
    hooks.settle()
    assert sorted(receiver.event_ids()) == sorted(Event.objects.values_list("pk", flat=True))
    assert {state(key) for key in keys} == {("delivered", 1, 204)}
    assert len(lost) == 4


def test_a_process_that_dies_before_it_writes_sends_the_event_again(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    dead, alive = Sending(), Sending()
    dead.run_pass()
    dead.await_ends()
    assert state(key) == ("pending", 0, None)
    pass_time(LEASE)
    alive.settle()
    assert state(key) == ("delivered", 1, 204)
    assert len(receiver.event_ids()) == 2
    assert len(set(receiver.event_ids())) == 1


def test_a_late_result_does_not_overwrite_a_newer_attempt(api: Caller, receiver: Receiver) -> None:
    receiver.respond = replies(500, 200)
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    late, newer = Sending(), Sending()
    late.run_pass()
    late.await_ends()
    pass_time(LEASE)
    newer.run_pass()
    newer.await_ends()
    late.run_pass()
    row = Delivery.objects.get(pk=key)
    assert (row.status, row.attempts) == ("pending", 0), "the newer attempt has the claim"
    assert row.claim
    newer.run_pass()
    late.run_pass()
    assert state(key) == ("delivered", 1, 200)
    assert Attempt.objects.count() == 1


def test_an_outcome_that_is_written_twice_counts_once(api: Caller, receiver: Receiver) -> None:
    receiver.respond = replies(500)
    make_subscription(api.account, receiver.url)
    publish(api.account)
    (one,) = claim()
    ended = Outcome(one, timezone.now(), 5, 500)
    assert [outcomes.outcomes_record([ended]) for _ in range(2)] == [1, 0]
    assert Delivery.objects.get().attempts == Attempt.objects.count() == 1


def test_a_result_whose_lease_is_over_still_counts_while_no_other_claimed_it(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    slow = Sending()
    slow.run_pass()
    slow.await_ends()
    pass_time(2 * LEASE)
    slow.settle()
    assert len(receiver.received) == 1
    assert Delivery.objects.get().status == "delivered"


def test_the_result_of_a_delivery_that_is_gone_is_dropped(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    (one,) = claim()
    Delivery.objects.all().delete()
    assert outcomes.outcomes_record([Outcome(one, timezone.now(), 5, 200)]) == 0


def test_an_attempt_of_a_subscription_that_was_switched_off_since_ends_the_delivery(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    subscription = make_subscription(api.account, receiver.url)
    keys = publish(api.account, 2)
    receiver.respond = replies(200, 500)
    hooks.run_pass()
    Subscription.objects.filter(pk=subscription.pk).update(active=False)
    hooks.settle()
    assert sorted(state(key)[0] for key in keys) == ["delivered", "disabled"]


def test_a_lease_from_before_the_clock_was_set_back_is_over(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    claim()
    Delivery.objects.update(lease_until=timezone.now() + timedelta(hours=1))
    hooks.settle()
    assert Delivery.objects.get().status == "delivered"


def test_a_lease_of_a_process_whose_clock_is_ahead_is_not_over(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    claim()
    Delivery.objects.update(lease_until=timezone.now() + LEASE + timedelta(seconds=10))
    assert hooks.run_pass() == 0
    assert receiver.received == []


def test_an_outcome_that_the_database_refuses_does_not_keep_others_from_being_written(
    api: Caller, receiver: Receiver, hooks: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_subscription(api.account, receiver.url)
    bad, *good = publish(api.account, 4)
    record = outcomes.outcomes_record

    def refusing(some: list[Outcome]) -> int:
        if bad in {each.delivery.id for each in some}:
            raise ValueError("not a value of this column")
        return record(some)

    monkeypatch.setattr("webhooks.dispatcher.outcomes_record", refusing)
    hooks.run_pass()
    hooks.await_ends()
    hooks.run_pass()
    assert {state(key)[0] for key in good} == {"delivered"}
    assert hooks.in_flight == 0


def test_a_subscription_under_a_lost_key_keeps_no_other_from_being_sent_to(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    lost = make_subscription(api.account, receiver.url + "/lost")
    make_subscription(api.account, receiver.url)
    publish(api.account, 2)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE webhooks_subscription SET secret = 'of another key' WHERE id = %s", [lost.pk])
    hooks.settle()
    assert [sent.path for sent in receiver.received] == ["/hook", "/hook"]
    assert set(Delivery.objects.filter(subscription=lost).values_list("status", "claim")) == {("pending", "")}


# Shares


def test_four_attempts_of_a_subscription_are_in_flight(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    release = threading.Event()
    receiver.respond = waiting_for(release)
    make_subscription(api.account, receiver.url)
    publish(api.account, 20)
    assert hooks.run_pass() == 4
    assert hooks.run_pass() == 0
    until(lambda: receiver.at_once == 4)
    release.set()
    hooks.settle()
    assert receiver.most_at_once == 4
    assert len(set(receiver.event_ids())) == 20


def test_receivers_that_do_not_answer_delay_no_other(
    new_account: Callable[..., Caller], receiver: Receiver, settings: LazySettings
) -> None:
    release = threading.Event()
    hooks = Sending(threads=128)
    with receiving(waiting_for(release)) as hanging, permitted(settings, receiver, hanging):
        try:
            good = new_account("good").account
            bad = [new_account(f"bad{number}").account for number in range(4)]
            for number in range(20):
                make_subscription(bad[number % 4], hanging.url)
            make_subscription(good, receiver.url)
            for account in bad:
                publish(account, 50)
            hooks.run_pass()
            publish(good, 40)
            until(lambda: hooks.run_pass() >= 0 and len(receiver.received) == 40)
            assert hanging.at_once == 64, "half of the share of each account"
        finally:
            release.set()
            hooks.await_ends()
            hooks.close()


def test_a_receiver_that_was_never_sent_to_gets_one_attempt_until_it_answers(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    make_subscription(api.account, receiver.url, last_triggered_at=None)
    publish(api.account, 9)
    assert hooks.run_pass() == 1
    hooks.await_ends()
    assert hooks.run_pass() == 4
    hooks.await_ends()
    receiver.respond = replies(500)
    assert hooks.run_pass() == 4
    hooks.await_ends()
    assert hooks.run_pass() == 0, "the others are due in some seconds"
    Delivery.objects.filter(status=DeliveryStatus.PENDING).update(next_attempt_at=timezone.now())
    assert hooks.run_pass() == 1


def test_receivers_that_hang_get_no_threads_for_what_is_in_flight_already(
    new_account: Callable[..., Caller], receiver: Receiver, settings: LazySettings
) -> None:
    """Their accounts have fewer attempts in flight than the good one, so they are asked first."""
    release = threading.Event()
    hooks = Sending(threads=32)
    with receiving(waiting_for(release)) as hanging, permitted(settings, receiver, hanging):
        try:
            for number in range(24):
                account = new_account(f"bad{number}").account
                make_subscription(account, hanging.url)
                publish(account)
            good = new_account("good").account
            for _ in range(2):
                make_subscription(good, receiver.url)
            assert hooks.run_pass() == 24
            publish(good, 20)
            assert hooks.run_pass() == 4, "half of its share"
        finally:
            release.set()
            hooks.await_ends()
            hooks.close()


def test_an_account_with_many_due_does_not_delay_the_first_of_another(
    new_account: Callable[..., Caller], receiver: Receiver
) -> None:
    busy, quiet = new_account("busy").account, new_account("quiet").account
    make_subscription(busy, receiver.url + "/busy")
    make_subscription(quiet, receiver.url + "/quiet")
    publish(busy, 300)
    publish(quiet, 1)
    hooks = Sending(threads=32)
    assert hooks.run_pass() == 5, "four of the subscription, and the one of the other account"
    hooks.await_ends()
    assert "/hook/quiet" in [sent.path for sent in receiver.received]


@pytest.mark.parametrize("rows", [1, 400])
def test_a_pass_has_as_many_statements_whatever_is_due(
    new_account: Callable[..., Caller], receiver: Receiver, rows: int
) -> None:
    accounts = [new_account(f"a{number}").account for number in range(3)]
    for account in accounts:
        make_subscription(account, receiver.url)
        publish(account, rows)
    hooks = Sending()
    with CaptureQueriesContext(connection) as beginning:
        assert hooks.run_pass() == 3 * min(rows, 4)
    hooks.await_ends()
    with CaptureQueriesContext(connection) as writing:
        hooks.dispatcher._write_ended()
    assert len(beginning) <= 10
    assert len(writing) <= 8


def test_nothing_due_is_one_query(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account, 3)
    hooks.settle()
    with CaptureQueriesContext(connection) as asked:
        assert hooks.run_pass() == 0
    assert len(asked) == 1
