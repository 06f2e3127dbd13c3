"""The thread of `hooks`: notified or not, through failures of the database, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connections
from django.utils import timezone

from tests.callers import Caller
from tests.webhooks.receiver import Received, Receiver, Reply, until
from tests.webhooks.sending import make_subscription, publish
from webhooks import claims, dispatcher, process, tasks
from webhooks.attempts import ClaimedDelivery, Outcome, make_attempt
from webhooks.dispatcher import WebhookDispatcher
from webhooks.models import Delivery, DeliveryStatus
from webhooks.sharing import InFlight

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def running() -> Iterator[Callable[..., WebhookDispatcher]]:
    made: list[WebhookDispatcher] = []

    def start(**options: object) -> WebhookDispatcher:
        made.append(WebhookDispatcher(32, **options))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop()


def are_delivered(count: int) -> bool:
    return Delivery.objects.filter(status=DeliveryStatus.DELIVERED).count() == count


def test_what_is_due_is_sent_without_a_notification(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher]
) -> None:
    make_subscription(api.account, receiver.url)
    running()
    publish(api.account, 12)
    until(lambda: are_delivered(12))


def test_a_notification_wakes_it(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebhookDispatcher, "LOOK_SECONDS", 3600.0)
    make_subscription(api.account, receiver.url)
    made = running()
    monkeypatch.setattr(process.PROCESS, "_dispatcher", made)
    until(lambda: not made._woken.is_set())
    publish(api.account, 12)
    tasks.send_deliveries()
    until(lambda: are_delivered(12))


def test_a_notification_in_another_process_does_nothing() -> None:
    tasks.send_deliveries()


def test_it_goes_on_when_the_database_is_back(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebhookDispatcher, "LOOK_SECONDS", 0.05)
    make_subscription(api.account, receiver.url)
    publish(api.account, 3)
    record, failures = dispatcher.record_outcomes, [OperationalError("the disk is full")] * 3

    def failing(outcomes: object) -> object:
        if failures:
            raise failures.pop()
        return record(outcomes)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatcher, "record_outcomes", failing)
    monkeypatch.setattr(dispatcher, "is_database_unavailable", lambda exc: isinstance(exc, OperationalError))
    running()
    until(lambda: are_delivered(3))
    assert len(receiver.received) == 3, "what has ended is written by a later pass, and not sent again"


def test_a_fault_of_an_attempt_costs_that_attempt_alone(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhooks.attempts.http.post", lambda *_, **__: 1 / 0)
    make_subscription(api.account, receiver.url)
    publish(api.account, 2)
    running()
    until(lambda: list(Delivery.objects.values_list("status", "attempts")) == [("pending", 1)] * 2)
    assert set(Delivery.objects.values_list("last_error", flat=True)) == {"The platform could not send the request."}


def test_receivers_that_answer_just_in_time_leave_threads_to_others(
    api: Caller,
    receiver: Receiver,
    running: Callable[..., WebhookDispatcher],
    new_account: Callable[..., Caller],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """32 threads: without the rule the four accounts of slow receivers would have all of them."""
    monkeypatch.setattr(dispatcher, "SLOW_SECONDS", 0.2)
    accounts = [new_account(f"slow-{number}").account for number in range(4)]
    for account in accounts:
        for _ in range(8):
            make_subscription(account, receiver.url)
        publish(account, 1)
    release = threading.Event()
    first = threading.Event()

    def slow(delivery: ClaimedDelivery) -> Outcome:
        if delivery.account_id == api.account.pk:
            return make_attempt(delivery)
        begun = timezone.now()
        release.wait(20) if first.is_set() else first.wait(0.3)
        return Outcome(delivery, begun, 300, 200)

    made = running(attempt=slow)
    until(lambda: are_delivered(32))
    first.set()
    for account in accounts:
        publish(account, 2)
    until(lambda: made._in_flight.total == 16)
    make_subscription(api.account, receiver.url)
    publish(api.account, 1)
    until(lambda: are_delivered(33))
    release.set()


@pytest.mark.parametrize("bad", [4, 8, 20])
def test_receivers_that_hang_after_they_have_proven_themselves_leave_threads_to_others(
    api: Caller,
    receiver: Receiver,
    running: Callable[..., WebhookDispatcher],
    new_account: Callable[..., Caller],
    bad: int,
) -> None:
    """32 threads, of which the accounts would have all until the end of their attempts."""
    accounts = [new_account(f"hanging-{number}").account for number in range(bad)]
    for account in accounts:
        for _ in range(8):
            make_subscription(account, receiver.url)
        publish(account, 2)
    make_subscription(api.account, receiver.url)
    release = threading.Event()

    def attempt(delivery: ClaimedDelivery) -> Outcome:
        if delivery.account_id != api.account.pk:
            release.wait(60)
        return make_attempt(delivery)

    made = running(attempt=attempt)
    try:
        until(lambda: made._in_flight.total >= 32)
        for number in range(3):
            publish(api.account, 1)
            until(lambda: are_delivered(number + 1))  # noqa: B023
    finally:
        release.set()


def test_webhooks_with_slow_receivers_that_are_made_and_deleted_take_no_more_memory_than_some(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MOST_SLOW", 3)
    made = running(attempt=lambda delivery: Outcome(delivery, timezone.now(), 6_000, 200))
    for _ in range(8):
        make_subscription(api.account, receiver.url)
    publish(api.account, 1)
    until(lambda: are_delivered(8))
    until(lambda: not made._in_flight.total)
    assert len(made._slow) == 3


def test_a_stop_waits_for_attempts_in_flight_and_begins_no_other(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher]
) -> None:
    release = threading.Event()

    def respond(_: Received) -> Reply:
        release.wait(10)
        return Reply()

    receiver.respond = respond
    make_subscription(api.account, receiver.url)
    publish(api.account, 6)
    made = running()
    until(lambda: receiver.at_once == 4)
    made.stop_claiming()
    stopping = threading.Thread(target=made.stop)
    stopping.start()
    release.set()
    stopping.join(15)
    assert not stopping.is_alive()
    assert are_delivered(4)
    assert Delivery.objects.filter(status=DeliveryStatus.PENDING, claim="").count() == 2
    assert len(receiver.received) == 4


def test_a_stop_does_not_wait_longer_than_it_may(
    api: Caller, receiver: Receiver, running: Callable[..., WebhookDispatcher]
) -> None:
    release = threading.Event()

    def hang(delivery: ClaimedDelivery) -> object:
        release.wait(20)
        return make_attempt(delivery)

    make_subscription(api.account, receiver.url)
    publish(api.account)
    made = running(attempt=hang)
    until(lambda: Delivery.objects.exclude(claim="").exists())
    made.stop(seconds=0.1)
    row = Delivery.objects.get()
    assert (row.status, row.attempts) == ("pending", 0)
    assert row.lease_until is not None
    release.set()


def test_processes_that_claim_at_once_never_claim_one_row_nor_too_many(api: Caller, receiver: Receiver) -> None:
    subscriptions = [make_subscription(api.account, receiver.url) for _ in range(3)]
    publish(api.account, 30)
    start = threading.Barrier(4)

    def claim() -> list[ClaimedDelivery]:
        due, _off = claims.due_subscriptions(timezone.now())
        return claims.claim_deliveries(due, InFlight(64))

    def claim_together(_: int) -> list[ClaimedDelivery]:
        start.wait()
        try:
            return claim()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        found = [each for some in pool.map(claim_together, range(4)) for each in some]
    assert found
    while some := claim():  # what another one had locked at that time is left to the next look
        found += some
    assert len({each.id for each in found}) == len(found)
    for subscription in subscriptions:
        assert sum(each.subscription_id == subscription.pk for each in found) == 4
