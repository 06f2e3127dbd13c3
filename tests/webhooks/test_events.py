"""The outbox: which subscriptions get an event, in the transaction of its fact, and one event for a key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction
from kombu.exceptions import OperationalError

from common.redis import redis_client, redis_key
from tests.callers import Caller
from tests.webhooks.outbox import subscribe
from webhooks.events import NewEvent, publish_events
from webhooks.models import Delivery, DeliveryStatus, Event
from webhooks.wakeups import HOOKS_WAKEUP

pytestmark = pytest.mark.django_db


class Undo(Exception):
    """Rolls a transaction back."""


@pytest.fixture
def sent_tasks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The tasks that are given to the broker: name and options."""
    found: list[tuple[str, dict[str, Any]]] = []
    # What the tests before have left, of which there may be enough.
    redis_client().delete(redis_key(HOOKS_WAKEUP.queue))
    sent = "common.work.wakeups.current_app.send_task"
    monkeypatch.setattr(sent, lambda name, **options: found.append((name, options)))
    return found


def new_event(caller: Caller, type: str = "vm.stopped", **fields: object) -> NewEvent:
    values = {"namespace_id": "ns_one", "namespace_slug": "one", "data": {"workspace_id": "ws_1"}, **fields}
    return NewEvent(caller.account.pk, type=type, **values)  # type: ignore[arg-type]


def publish(*events: NewEvent) -> int:
    with transaction.atomic():
        return publish_events(events)


def publish_and_undo(event: NewEvent, then: Callable[[], None] = lambda: None) -> None:
    """In a transaction that is rolled back a moment after `then`."""
    with suppress(Undo), transaction.atomic():
        assert publish_events([event]) == 1
        then()
        time.sleep(0.1)
        raise Undo


def test_an_event_goes_to_those_who_want_it(api: Caller, stranger: Caller) -> None:
    wanted = [
        subscribe(api.account),
        subscribe(api.account, "vm.stopped", "vm.lost"),
        subscribe(api.account, namespace_id="ns_one"),
    ]
    subscribe(api.account, "vm.lost")
    subscribe(api.account, namespace_id="ns_two")
    subscribe(api.account, active=False)
    subscribe(stranger.account)
    assert publish(new_event(api)) == 1
    event = Event.objects.get()
    assert (event.type, event.namespace_slug, event.data) == ("vm.stopped", "one", {"workspace_id": "ws_1"})
    rows = Delivery.objects.all()
    assert {row.subscription_id for row in rows} == {each.pk for each in wanted}
    assert {(row.event_id, row.status, row.next_attempt_at) for row in rows} == {
        (event.pk, DeliveryStatus.PENDING, event.created_at)
    }


def test_what_is_not_wanted_is_not_written(api: Caller) -> None:
    subscribe(api.account, "vm.lost")
    assert publish(new_event(api)) == 0
    assert not Event.objects.exists()


def test_one_key_is_one_event(api: Caller, stranger: Caller) -> None:
    subscribe(api.account)
    subscribe(stranger.account)
    assert publish(new_event(api, key="usage:1"), new_event(api, key="usage:2")) == 2
    assert publish(new_event(api, key="usage:2"), new_event(api, key="usage:3"), new_event(api)) == 2
    assert publish(new_event(stranger, key="usage:1")) == 1
    assert Event.objects.count() == Delivery.objects.count() == 5


def test_an_unknown_event_is_refused(api: Caller) -> None:
    with pytest.raises(ValueError, match="no event"):
        publish(new_event(api, "vm.burnt"))


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_nothing_is_published(api: Caller) -> None:
    with pytest.raises(RuntimeError):
        publish_events([new_event(api)])


def test_what_is_rolled_back_is_not_published(api: Caller) -> None:
    subscribe(api.account)
    publish_and_undo(new_event(api))
    assert not Event.objects.exists()
    assert not Delivery.objects.exists()


def test_events_are_in_the_order_in_which_they_were_published(api: Caller) -> None:
    subscribe(api.account)
    publish(*(new_event(api, data={"number": number}) for number in range(50)))
    for order in ("created_at", "pk"):
        assert [event.data["number"] for event in Event.objects.order_by(order)] == list(range(50))
    for order in ("next_attempt_at", "pk"):
        rows = Delivery.objects.order_by(order).select_related("event")
        assert [row.event.data["number"] for row in rows] == list(range(50))


@pytest.mark.parametrize("keyed", [False, True])
def test_publishing_costs_the_same_for_one_subscription_and_for_ten(
    api: Caller, django_assert_num_queries: Any, keyed: bool
) -> None:
    events = [new_event(api, key=str(number) if keyed else None) for number in range(5)]
    with transaction.atomic(), django_assert_num_queries(1):
        publish_events(events)
    for count in (1, 9):
        for _ in range(count):
            subscribe(api.account)
        Event.objects.all().delete()
        Delivery.objects.all().delete()
        # Subscriptions, events, deliveries; with keys, which of the events are new.
        with transaction.atomic(), django_assert_num_queries(4 if keyed else 3):
            assert publish_events(events) == 5


def test_data_of_any_size_is_stored_once(api: Caller) -> None:
    for _ in range(3):
        subscribe(api.account)
    large = {"text": "ünïcödé \U0001f600 " * 100_000, "list": list(range(10_000)), "small": 1e-08}
    publish(new_event(api, data=large))
    assert Event.objects.get().data == large
    assert Delivery.objects.count() == 3


def test_thousands_of_events_are_published_at_once(api: Caller) -> None:
    subscribe(api.account)
    assert publish(*(new_event(api, key=str(number)) for number in range(3_000))) == 3_000
    assert publish(*(new_event(api, key=str(number)) for number in range(2_000, 4_000))) == 1_000
    assert Delivery.objects.count() == 4_000


@pytest.mark.django_db(transaction=True)
def test_of_publishers_with_one_key_at_once_one_publishes(api: Caller) -> None:
    subscribe(api.account)
    subscribe(api.account)
    together = threading.Barrier(8)

    def publish_once(number: int) -> int:
        together.wait()
        try:
            # In different orders: none waits for another in a circle.
            keys = ["a", "b"] if number % 2 else ["b", "a"]
            return publish(*(new_event(api, key=key) for key in keys))
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(publish_once, range(8))) == [0] * 7 + [2]
    assert (Event.objects.count(), Delivery.objects.count()) == (2, 4)


@pytest.mark.django_db(transaction=True)
def test_a_key_of_a_transaction_that_is_rolled_back_is_free(api: Caller) -> None:
    subscribe(api.account)
    written = threading.Event()

    def roll_back() -> None:
        try:
            publish_and_undo(new_event(api, key="a"), then=written.set)
        finally:
            connection.close()

    thread = threading.Thread(target=roll_back)
    thread.start()
    written.wait(10)
    assert publish(new_event(api, key="a")) == 1
    thread.join()
    assert Delivery.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_commit_notifies_the_process_that_sends(api: Caller, sent_tasks: list[tuple[str, dict[str, Any]]]) -> None:
    publish(new_event(api))
    assert sent_tasks == []
    subscribe(api.account)
    publish(new_event(api))
    publish_and_undo(new_event(api))
    assert [(name, options["queue"]) for name, options in sent_tasks] == [(HOOKS_WAKEUP.task, HOOKS_WAKEUP.queue)]
    assert sent_tasks[0][1]["expires"] > 0


@pytest.mark.django_db(transaction=True)
def test_without_redis_a_fact_is_published_all_the_same(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OperationalError("no broker")

    monkeypatch.setattr("common.work.wakeups.current_app.send_task", refuse)
    subscribe(api.account)
    publish(new_event(api))
    assert Delivery.objects.count() == 1
