"""Rows that another transaction keeps locked: no other account's webhooks wait for it, and nothing is sent twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from django.db.models import Model

from config.database import database
from tests.callers import Caller
from tests.webhooks.receiver import Receiver, Sending
from tests.webhooks.sending import make_subscription, publish, state
from webhooks.disabling import disable_deliveries
from webhooks.models import Attempt, Delivery, DeliveryStatus, Subscription

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def locked(model: type[Model], key: str) -> Iterator[None]:
    """By another transaction, until the end of the block."""
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                model._default_manager.select_for_update().get(pk=key)
                taken.set()
                release.wait(30)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(120)
        yield
    finally:
        release.set()
        thread.join(10)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """A statement that waits for a lock is an error of the test."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")
    yield
    connection.close()


@pytest.fixture
def other(new_account: Callable[..., Caller]) -> Caller:
    return new_account("other")


def two_deliveries(api: Caller, other: Caller, receiver: Receiver) -> tuple[Subscription, str, str]:
    """A subscription of each account, the first of them, and the delivery of each."""
    hook = make_subscription(api.account, receiver.url)
    make_subscription(other.account, receiver.url)
    (mine,), (others,) = publish(api.account), publish(other.account)
    return hook, mine, others


@pytest.mark.parametrize("model", [Subscription, Delivery])
def test_a_row_that_is_locked_keeps_no_other_from_being_claimed(
    api: Caller, other: Caller, receiver: Receiver, hooks: Sending, no_waiting: None, model: type[Model]
) -> None:
    hook, mine, others = two_deliveries(api, other, receiver)
    with locked(model, hook.pk if model is Subscription else mine):
        hooks.settle()
        assert (state(mine)[0], state(others)[0]) == ("pending", "delivered")
    hooks.settle()
    assert state(mine) == ("delivered", 1, 204)
    assert len(receiver.received) == 2


@pytest.mark.parametrize("model", [Subscription, Delivery])
def test_a_row_that_is_locked_keeps_no_other_result_from_being_written(
    api: Caller, other: Caller, receiver: Receiver, hooks: Sending, no_waiting: None, model: type[Model]
) -> None:
    hook, mine, others = two_deliveries(api, other, receiver)
    hooks.run_pass()
    hooks.await_ends()
    with locked(model, hook.pk if model is Subscription else mine):
        hooks.run_pass()
        assert (state(mine)[0], state(others)[0]) == ("pending", "delivered")
        assert hooks.in_flight == 1, "it counts until it is written"
    hooks.run_pass()
    assert (state(mine), hooks.in_flight) == (("delivered", 1, 204), 0)
    assert (len(receiver.received), Attempt.objects.count()) == (2, 2)


def test_a_delivery_that_is_locked_keeps_no_other_from_being_disabled(
    api: Caller, receiver: Receiver, no_waiting: None
) -> None:
    hook = make_subscription(api.account, receiver.url)
    first, second = publish(api.account, 2)
    Subscription.objects.update(active=False)
    with locked(Delivery, first):
        assert disable_deliveries(hook.pk) == 1
    assert disable_deliveries(hook.pk) == 1
    assert {state(key)[0] for key in (first, second)} == {DeliveryStatus.DISABLED}


def test_a_result_whose_webhook_is_gone_is_not_kept(api: Caller, receiver: Receiver, hooks: Sending) -> None:
    make_subscription(api.account, receiver.url)
    publish(api.account)
    hooks.run_pass()
    hooks.await_ends()
    Delivery.objects.all().delete()
    Subscription.objects.all().delete()
    hooks.run_pass()
    assert hooks.in_flight == 0


def test_statements_of_hooks_wait_for_a_lock_for_some_seconds_only() -> None:
    made = database("postgresql:///platform?host=/run&options=-c%20jit%3Doff", lock_seconds=5)
    assert made["OPTIONS"]["options"] == "-c jit=off -c lock_timeout=5s"
    assert "options" not in database("postgresql:///platform")["OPTIONS"]
