"""What is in flight at once: no receiver and no account delays another, and a pass is a few statements."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.callers import Caller
from tests.webhooks.receiver import Receiver, Sending, receiving, replies, until, waiting_for
from tests.webhooks.sending import make_subscription, permitted, publish
from webhooks.models import Delivery, DeliveryStatus

pytestmark = pytest.mark.django_db


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
