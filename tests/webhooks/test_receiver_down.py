"""A receiver that is down for three days, and a process that is killed again and again: every event arrives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone
from standardwebhooks import Webhook

from tests.callers import Caller
from tests.webhooks.receiver import Received, Reply, Sending, pass_time, receiving
from tests.webhooks.sending import SECRET, make_subscription, permitted, publish
from webhooks import claims
from webhooks.models import DELIVERY_LEASE, Attempt, Delivery, DeliveryStatus, Event, Subscription
from webhooks.sharing import InFlight

pytestmark = pytest.mark.django_db
DOWN = timedelta(hours=75)


class Clock:
    """Time passes by moving all that is stored into the past."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def advance(self, span: timedelta) -> None:
        pass_time(span)
        self.passed += span

    def advance_to_next(self) -> None:
        """Until the leases of a dead process end, or something is due: a receiver that failed gets one at a time."""
        pending = Delivery.objects.filter(status=DeliveryStatus.PENDING)
        times = list(pending.values_list("next_attempt_at", "lease_until"))
        leases = [lease for _, lease in times if lease and lease > timezone.now()]
        to = max(leases) if leases else min(due for due, _ in times if due)
        self.advance(max(to - timezone.now(), timedelta()) + timedelta(milliseconds=1))


def killed_after_its_claim(hooks: Sending) -> None:
    """The process ends between its claim and its requests."""
    due, _ = claims.due_subscriptions(timezone.now())
    claims.claim_deliveries(due, InFlight(32))


def killed_before_it_writes(hooks: Sending) -> None:
    """Between the answers and the transaction."""
    hooks.run_pass()
    hooks.await_ends()


def lives(hooks: Sending) -> None:
    hooks.settle()


@pytest.fixture
def processes() -> Iterator[Callable[[], Sending]]:
    """One process after the other."""
    made: list[Sending] = []

    def start() -> Sending:
        made.append(Sending())
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_every_event_arrives_at_a_receiver_that_was_down_for_75_hours(
    api: Caller, settings: LazySettings, processes: Callable[[], Sending], seed: int
) -> None:
    chance, clock = random.Random(seed), Clock()
    down = {"is": True}

    def respond(_: Received) -> Reply:
        return Reply(chance.choice([500, 502, 404, 302]) if down["is"] else 204)

    with receiving(respond) as receiver, permitted(settings, receiver):
        subscription = make_subscription(api.account, receiver.url)
        begin: datetime = timezone.now()
        publish(api.account, 6)
        while clock.passed < DOWN:
            chance.choice([killed_after_its_claim, killed_before_it_writes, lives, lives])(processes())
            clock.advance_to_next()
        assert not Delivery.objects.exclude(status=DeliveryStatus.PENDING).exists()
        receiver.received.clear()
        down["is"] = False
        for _ in range(20):
            lives(processes())
            if not Delivery.objects.filter(status=DeliveryStatus.PENDING).exists():
                break
            clock.advance_to_next()
        assert set(receiver.event_ids()) == set(Event.objects.values_list("pk", flat=True))
        assert set(Delivery.objects.values_list("status", flat=True)) == {"delivered"}
        for sent in receiver.received:
            assert Webhook(SECRET).verify(sent.body, dict(sent.headers))["id"] == sent.headers["webhook-id"]
        subscription.refresh_from_db()
        assert (subscription.active, subscription.failing_since) == (True, None)
        assert timezone.now() - begin < DOWN
        _attempts_are_written_once()


def _attempts_are_written_once() -> None:
    for delivery in Delivery.objects.all():
        numbers = Attempt.objects.filter(delivery=delivery).order_by("pk").values_list("number", flat=True)
        assert list(numbers) == list(range(1, delivery.attempts + 1))


def test_a_receiver_that_is_down_for_longer_than_all_attempts_fails_and_can_be_sent_to_again(
    api: Caller, settings: LazySettings, processes: Callable[[], Sending]
) -> None:
    from webhooks.redeliver import failed_redeliver

    clock, hooks = Clock(), processes()
    status = {"is": 500}
    with receiving(lambda _: Reply(status["is"])) as receiver, permitted(settings, receiver):
        subscription = make_subscription(api.account, receiver.url)
        publish(api.account, 3)
        lives(hooks)
        while Delivery.objects.filter(status=DeliveryStatus.PENDING).exists():
            clock.advance_to_next()
            lives(hooks)
        assert clock.passed > DOWN
        assert set(Delivery.objects.values_list("status", "attempts")) == {("failed", 10)}
        receiver.received.clear()
        status["is"] = 200
        since = timezone.now() - clock.passed - timedelta(minutes=1)
        assert failed_redeliver(subscription, since=since) == 3
        lives(hooks)
        assert set(receiver.event_ids()) == set(Event.objects.values_list("pk", flat=True))
        assert Subscription.objects.get().failing_since is None


def test_the_lease_is_longer_than_an_attempt_and_its_transaction() -> None:
    from webhooks.attempts import ATTEMPT_SECONDS

    assert timedelta(seconds=ATTEMPT_SECONDS * 2) <= DELIVERY_LEASE.length
