"""Processes that die in an attempt, leases that end, results that come late or twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tests.callers import Caller
from tests.webhooks.receiver import Receiver, Sending, pass_time, replies
from tests.webhooks.sending import make_subscription, publish, state
from webhooks import claims, outcomes, tasks
from webhooks.attempts import ClaimedDelivery, Outcome
from webhooks.models import DELIVERY_LEASE, Attempt, Delivery, Event, Subscription
from webhooks.sharing import InFlight

pytestmark = pytest.mark.django_db


def test_a_claim_is_taken_once(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account, 10)
    first, second = claim(), claim()
    assert len(first) == 4
    assert second == [], "four are in flight, whichever process has them"


def claim() -> list[ClaimedDelivery]:
    """What a process claims that has nothing in flight."""
    due, _ = claims.due_subscriptions(timezone.now())
    return claims.claim_deliveries(due, InFlight(32))


def test_what_a_dead_process_had_claimed_is_sent_when_its_leases_end(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    make_subscription(api.account, receiver.url)
    keys = publish(api.account, 6)
    lost = claim()
    hooks.settle()
    assert receiver.received == [], "four of the subscription are in flight still"
    pass_time(DELIVERY_LEASE.length)
    hooks.settle()
    assert sorted(receiver.event_ids()) == sorted(Event.objects.values_list("pk", flat=True))
    assert {state(key) for key in keys} == {("delivered", 1, 204)}
    assert len(lost) == 4


def test_what_waits_since_before_the_clock_was_set_back_is_sent(
    api: Caller, receiver: Receiver, hooks: Sending
) -> None:
    make_subscription(api.account, receiver.url)
    late, soon = publish(api.account, 2)
    next_attempts = {late: timedelta(days=365), soon: timedelta(hours=24 * 1.2)}
    for key, wait in next_attempts.items():
        Delivery.objects.filter(pk=key).update(next_attempt_at=timezone.now() + wait)
    tasks.end_too_long_waits()
    hooks.settle()
    assert state(late) == ("delivered", 1, 204)
    assert state(soon) == ("pending", 0, None), "as the last attempt waits"


def test_a_process_that_dies_before_it_writes_sends_the_event_again(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    (key,) = publish(api.account)
    dead, alive = Sending(), Sending()
    dead.run_pass()
    dead.await_ends()
    assert state(key) == ("pending", 0, None)
    pass_time(DELIVERY_LEASE.length)
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
    pass_time(DELIVERY_LEASE.length)
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
    assert [outcomes.record_outcomes([ended]) for _ in range(2)] == [(1, []), (0, [])]
    assert Delivery.objects.get().attempts == Attempt.objects.count() == 1


def test_a_result_whose_lease_is_over_still_counts_while_no_other_claimed_it(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    slow = Sending()
    slow.run_pass()
    slow.await_ends()
    pass_time(2 * DELIVERY_LEASE.length)
    slow.settle()
    assert len(receiver.received) == 1
    assert Delivery.objects.get().status == "delivered"


def test_the_result_of_a_delivery_that_is_gone_is_dropped(api: Caller, receiver: Receiver) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    (one,) = claim()
    Delivery.objects.all().delete()
    assert outcomes.record_outcomes([Outcome(one, timezone.now(), 5, 200)]) == (0, [])


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


def test_an_outcome_that_the_database_refuses_does_not_keep_others_from_being_written(
    api: Caller, receiver: Receiver, hooks: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_subscription(api.account, receiver.url)
    bad, *good = publish(api.account, 4)
    record = outcomes.record_outcomes

    def refusing(some: list[Outcome]) -> outcomes.Recorded:
        if bad in {each.delivery.id for each in some}:
            raise ValueError("not a value of this column")
        return record(some)

    monkeypatch.setattr("webhooks.dispatcher.record_outcomes", refusing)
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
