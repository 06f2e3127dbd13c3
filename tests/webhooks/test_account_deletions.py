"""An account that is deleted while something is written for it: by a request, by a charge, by the process `hooks`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from accounts.models import Account, Credential
from accounts.services import account_delete, account_lock
from credits import ledger
from credits.ledger import Purpose
from credits.models import Entry, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.staff.pages import confirm
from tests.webhooks.outbox import subscribe
from tests.webhooks.receiver import until
from tests.world import assert_error
from webhooks.events import NewEvent, publish_events
from webhooks.models import Delivery, Event, Subscription

pytestmark = [
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], object]], Future[object]]]:
    """Runs work on a connection of its own."""

    def run(work: Callable[[], object]) -> object:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        yield lambda work: pool.submit(run, work)


def waits_for_a_lock(number: int = 1) -> bool:
    """Whether as many connections do."""
    with connection.cursor() as cursor:
        # Within a transaction the server shows what it showed first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0] >= number)


def publish(account: Account) -> None:
    publish_events([NewEvent(account.pk, "", "", "vm.stopped")])


@contextmanager
def published_by_a_request(caller: Caller) -> Iterator[None]:
    """Commits after the block."""
    with transaction.atomic():
        account_lock(caller.account)
        publish(caller.account)
        yield


def nothing_is_left() -> bool:
    return not any(model._default_manager.exists() for model in (Account, Subscription, Event, Delivery))


def test_what_a_request_has_published_by_then_is_deleted_with_it(
    api: Caller, elsewhere: Callable[[Callable[[], object]], Future[object]]
) -> None:
    subscribe(api.account)
    with published_by_a_request(api):
        deleted = elsewhere(lambda: account_delete(api.account))
        until(waits_for_a_lock)
    deleted.result(120)
    assert nothing_is_left()


def test_what_is_written_under_no_lock_is_deleted_with_it(
    api: Caller, elsewhere: Callable[[Callable[[], object]], Future[object]]
) -> None:
    """The event commits after the events were deleted, while the deletion waits for another row."""
    subscribe(api.account)
    with transaction.atomic():
        Credential.objects.select_for_update(no_key=True).get(account=api.account)
        publish(api.account)
        deleted = elsewhere(lambda: account_delete(api.account))
        until(waits_for_a_lock)
    deleted.result(120)
    assert nothing_is_left()


def test_staff_delete_an_account_while_a_request_publishes(
    api: Caller, staff: Client, elsewhere: Callable[[Callable[[], object]], Future[object]]
) -> None:
    """The admin's own transaction is around the deletion."""
    subscribe(api.account)
    with published_by_a_request(api):
        answer = elsewhere(lambda: confirm(staff, "accounts/account", "remove", api.account.pk, reason="why"))
        until(waits_for_a_lock)
    answer.result(120)
    assert nothing_is_left()


@pytest.mark.parametrize("first", ["charge", "deletion"])
def test_a_charge_that_suspends_a_namespace_of_the_account_does_not_fail(
    api: Caller, elsewhere: Callable[[Callable[[], object]], Future[object]], first: str
) -> None:
    """It locks the namespace, and the account not at all. Its entries outlive both."""
    subscribe(api.account)
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    common: dict[str, Any] = {"namespace": team, "service": Service.SANDBOX}
    ledger.quota_set(**common, limit=Decimal(1), overdraft=Decimal(0), action="block", thresholds=[80])
    works = {
        "charge": lambda: ledger.credits_charge(**common, amount=Decimal(2), purpose=Purpose()),
        "deletion": lambda: account_delete(api.account),
    }
    with transaction.atomic():
        works.pop(first)()
        (other,) = works.values()
        done = elsewhere(other)
        until(waits_for_a_lock)
    done.result(120)
    assert nothing_is_left()
    assert Entry.objects.get().amount == Decimal(2)


def test_a_deletion_and_what_writes_outcomes_do_not_wait_for_each_other(
    api: Caller, elsewhere: Callable[[Callable[[], object]], Future[object]]
) -> None:
    """As what came of an attempt is written: the subscription is locked, then its deliveries."""
    found = subscribe(api.account)
    with transaction.atomic():
        publish(api.account)
    locked, waited = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            Subscription.objects.select_for_update(no_key=True).get(pk=found.pk)
            locked.set()
            waited.wait(20)
            list(Delivery.objects.select_for_update(no_key=True).filter(subscription=found))

    written = elsewhere(write)
    locked.wait(20)
    deleted = elsewhere(lambda: account_delete(api.account))
    until(waits_for_a_lock)
    waited.set()
    deleted.result(120)
    written.result(120)
    assert nothing_is_left()


def test_a_request_that_comes_to_its_account_after_the_deletion_is_refused(
    api: Caller, elsewhere: Callable[[Callable[[], object]], Future[object]]
) -> None:
    subscribe(api.account)
    Namespace.objects.create(account=api.account, name="Team", slug="team")
    with transaction.atomic():
        account_delete(api.account)
        answers = [
            elsewhere(lambda: api.post("/webhooks", {"url": "https://hooks.example.com/", "events": ["*"]})),
            elsewhere(lambda: api.post("/namespaces/team/suspend")),
        ]
        until(lambda: waits_for_a_lock(len(answers)))
    subscribed, suspended = (answer.result(120) for answer in answers)
    assert_error(subscribed, 401, "unauthorized")
    assert_error(suspended, 404, "not_found")
    assert nothing_is_left()
