"""What is older than 30 days is removed, a batch at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.webhooks.receiver import pass_time
from tests.webhooks.sending import NOWHERE, make_subscription, publish
from webhooks import retention
from webhooks.models import Attempt, Delivery, DeliveryStatus, Event

pytestmark = pytest.mark.django_db


def end(keys: list[str]) -> None:
    """They were delivered by one attempt each."""
    rows = Delivery.objects.filter(pk__in=keys)
    rows.update(status=DeliveryStatus.DELIVERED, next_attempt_at=None, attempts=1)
    now = timezone.now()
    Attempt.objects.bulk_create(
        Attempt(subscription_id=row.subscription_id, delivery=row, number=1, started_at=now, duration_ms=3)
        for row in rows
    )


def test_events_are_kept_for_thirty_days_with_all_that_belongs_to_them(api: Caller) -> None:
    make_subscription(api.account, NOWHERE)
    make_subscription(api.account, NOWHERE)
    end(publish(api.account, 3))
    pass_time(timedelta(days=29))
    end(publish(api.account, 2))
    assert retention.remove_old_events() == 0
    pass_time(timedelta(days=1, minutes=1))
    assert retention.remove_old_events() == 3
    assert (Event.objects.count(), Delivery.objects.count(), Attempt.objects.count()) == (2, 4, 4)


def test_what_is_pending_stays_until_it_has_ended(api: Caller) -> None:
    make_subscription(api.account, NOWHERE)
    first, second = publish(api.account, 2)
    end([first])
    pass_time(timedelta(days=31))
    assert retention.remove_old_events() == 1
    assert Delivery.objects.get().pk == second
    end([second])
    assert retention.remove_old_events() == 1
    assert not Event.objects.exists()


def test_more_than_one_batch_is_removed_and_a_run_has_a_limit(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "MOST_BATCHES", 3)
    make_subscription(api.account, NOWHERE)
    end(publish(api.account, 9))
    pass_time(timedelta(days=31))
    assert [retention.remove_old_events() for _ in range(3)] == [6, 3, 0]
    assert not Attempt.objects.exists()
