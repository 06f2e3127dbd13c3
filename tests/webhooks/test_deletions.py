"""What becomes of webhooks, events and deliveries when a webhook, its namespace or its account is deleted; the limit
under load."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.services import account_delete
from namespaces.models import Namespace, NamespaceActivity
from tests.callers import Caller
from tests.webhooks.outbox import subscribe
from webhooks import subscriptions
from webhooks.events import NewEvent, publish_events
from webhooks.models import Attempt, AuditEntry, Delivery, DeliveryStatus, Event, Subscription

pytestmark = pytest.mark.django_db

NEW = {"url": "https://hooks.example.com/", "events": ["vm.stopped"]}


@pytest.fixture
def team(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


@pytest.fixture
def publish(api: Caller) -> Callable[..., None]:
    """Publishes events of a namespace, each with an attempt of its first delivery."""

    def make(count: int = 1, namespace_id: str = "") -> None:
        with transaction.atomic():
            publish_events([NewEvent(api.account.pk, namespace_id, "", "vm.stopped") for _ in range(count)])
        for row in Delivery.objects.filter(attempts=0):
            Attempt.objects.create(
                subscription_id=row.subscription_id,
                delivery=row,
                number=1,
                started_at=timezone.now(),
                duration_ms=1,
                error="No answer.",
            )

    return make


def test_a_deleted_webhook_gets_nothing_more(api: Caller, publish: Callable[..., None]) -> None:
    webhook, other = subscribe(api.account), subscribe(api.account)
    publish()
    api.delete(f"/webhooks/{webhook.public_id}")
    publish()
    assert Delivery.objects.get(subscription=webhook).status == DeliveryStatus.DISABLED
    assert Delivery.objects.filter(subscription=other, status=DeliveryStatus.PENDING).count() == 2
    webhook.refresh_from_db()
    assert (webhook.active, webhook.url, webhook.secret, webhook.former_secret) == (False, "", "", None)


def test_deliveries_of_deleted_webhooks_are_removed_in_batches(
    api: Caller, publish: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "REMOVE_BATCH", 4)
    deleted, kept = [subscribe(api.account) for _ in range(2)], subscribe(api.account)
    publish(3)
    for webhook in deleted:
        api.delete(f"/webhooks/{webhook.public_id}")
    assert subscriptions.deleted_subscriptions_remove() == 0, "a transaction may still publish to them"
    Subscription.objects.filter(active=False).update(deleted_at=timezone.now() - timedelta(minutes=11))
    assert [subscriptions.deleted_subscriptions_remove() for _ in range(3)] == [4, 2, 0]
    assert list(Subscription.objects.all()) == [kept]
    assert Delivery.objects.count() == Attempt.objects.count() == Event.objects.count() == 3


def test_webhooks_that_were_made_and_deleted_again_and_again_are_removed_by_a_few_statements(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_at = timezone.now() - timedelta(minutes=11)
    counts = []
    for count in (2, 40):
        for _ in range(count):
            subscribe(api.account, active=False, deleted_at=deleted_at)
        with CaptureQueriesContext(connection) as asked:
            subscriptions.deleted_subscriptions_remove()
        assert not Subscription.objects.exists()
        counts.append(len(asked))
    assert counts[0] == counts[1]
    monkeypatch.setattr(subscriptions, "REMOVE_BATCH", 3)
    for _ in range(5):
        subscribe(api.account, active=False, deleted_at=deleted_at)
    subscriptions.deleted_subscriptions_remove()
    assert Subscription.objects.count() == 2, "one run has a limit"


def test_a_namespace_is_deleted_with_its_webhooks(api: Caller, team: Namespace, publish: Callable[..., None]) -> None:
    default = Namespace.objects.get(account=api.account, is_default=True)
    mine = subscribe(api.account, namespace_id=team.pk, namespace_slug="team")
    kept = [subscribe(api.account), subscribe(api.account, namespace_id=default.pk, namespace_slug="default")]
    publish(namespace_id=team.pk)
    assert api.delete("/namespaces/team").status_code == 200
    assert {each["id"] for each in api.get("/webhooks").json()["webhooks"]} == {each.public_id for each in kept}
    assert not Delivery.objects.filter(subscription=mine, status=DeliveryStatus.PENDING).exists()
    assert Delivery.objects.filter(subscription=kept[0], status=DeliveryStatus.PENDING).exists()
    activity = NamespaceActivity.objects.filter(namespace_id=team.pk, action="webhook_deleted").get()
    assert (activity.actor, mine.pk in activity.detail) == ("system", True)


def test_an_account_is_deleted_with_all_of_it_and_none_of_it_is_loaded(
    api: Caller, stranger: Caller, publish: Callable[..., None]
) -> None:
    kept = subscribe(stranger.account)
    for _ in range(3):
        subscribe(api.account)
    publish(2)
    assert not loaded_by_deletion(api)
    assert list(Subscription.objects.all()) == [kept]
    for model in (Event, Delivery, Attempt, AuditEntry):
        assert not model._default_manager.exists(), model


def loaded_by_deletion(caller: Caller) -> list[str]:
    """The queries that read events, deliveries or attempts, of which there may be very many."""
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        account_delete(caller.account)
    found = [each["sql"] for each in queries.captured_queries if each["sql"].startswith("SELECT")]
    tables = ("webhooks_delivery", "webhooks_attempt", "webhooks_event")
    return [sql for sql in found if any(table in sql for table in tables)]


@pytest.mark.django_db(transaction=True)
def test_of_forty_creations_at_once_ten_succeed(api: Caller, team: Namespace) -> None:
    def create(number: int) -> tuple[int, Any]:
        try:
            body = {**NEW, "namespace": "team"} if number % 2 else NEW
            answer = api.post("/webhooks", body)
            return answer.status_code, answer.json().get("code")
        finally:
            connection.close()

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(create, range(40)))
    assert sorted(answers) == [(201, None)] * 10 + [(409, "webhook_limit_exceeded")] * 30
    assert Subscription.objects.count() == AuditEntry.objects.count() == 10


@pytest.mark.django_db(transaction=True)
def test_a_namespace_deleted_at_the_same_time_leaves_no_webhook(api: Caller, team: Namespace) -> None:
    def create(number: int) -> int:
        try:
            if number == 3:
                return int(api.delete("/namespaces/team").status_code)
            return int(api.post("/webhooks", {**NEW, "namespace": "team"}).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(create, range(8)))
    assert set(answers) <= {200, 201, 404}
    assert not Subscription.objects.filter(deleted_at=None).exists()
