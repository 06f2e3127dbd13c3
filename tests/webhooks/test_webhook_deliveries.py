"""Deliveries of a webhook through its routes: test events, lists, redelivery, switches, the former secret."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.webhooks.outbox import subscribe
from tests.webhooks.test_webhooks import create
from tests.world import assert_error
from webhooks.models import Delivery, DeliveryStatus, DisabledReason, Event, Subscription

pytestmark = pytest.mark.django_db


def test_a_test_event_goes_to_one_webhook_whatever_it_wants(api: Caller) -> None:
    made, _ = create(api), create(api, events=["*"])
    answer = api.post(f"/webhooks/{made['id']}/test")
    assert answer.status_code == 202
    delivery = answer.json()["delivery"]
    assert (delivery["event"], delivery["status"], delivery["attempts"]) == ("webhook.test", "pending", 0)
    assert Delivery.objects.get().subscription.public_id == made["id"]
    assert Event.objects.get().data == {"webhook_id": made["id"]}
    assert api.get(f"/webhooks/{made['id']}/deliveries").json()["deliveries"] == [delivery]


def test_tests_and_redeliveries_of_an_account_are_limited(api: Caller, stranger: Caller) -> None:
    paths = [f"/webhooks/{create(api)['id']}" for _ in range(2)]
    delivery = api.post(f"{paths[0]}/test").json()["delivery"]
    ways = [f"{path}/test" for path in paths] + [f"/webhooks/deliveries/{delivery['id']}/redeliver"]
    answers = [api.post(ways[number % 3]) for number in range(60)]
    assert [answer.status_code for answer in answers] == [202] * 59 + [429]
    assert_error(api.post(f"{paths[0]}/redeliver", {"since": "2026-01-01T00:00:00Z"}), 429, "rate_limited")
    assert api.get("/webhooks").status_code == 200
    assert stranger.post(f"/webhooks/{create(stranger)['id']}/test").status_code == 202


def test_deliveries_are_filtered_and_paged(api: Caller) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}"
    sent = [api.post(f"{path}/test").json()["delivery"]["id"] for _ in range(3)]
    rows = Delivery.objects.order_by("created_at")
    Delivery.objects.filter(pk=sent[0]).update(
        status=DeliveryStatus.FAILED, next_attempt_at=None, last_status_code=500, last_error="Status 500.", attempts=10
    )
    assert [row.pk for row in rows] == sent
    body = api.get(f"{path}/deliveries?limit=2").json()
    assert body["pagination"] == {"total": 3, "limit": 2, "offset": 0}
    assert len(body["deliveries"]) == 2
    failed = api.get(f"{path}/deliveries?status=failed").json()["deliveries"]
    assert [(each["id"], each["last_status_code"], each["last_error"]) for each in failed] == [
        (sent[0], 500, "Status 500.")
    ]
    assert_error(api.get(f"{path}/deliveries?status=lost"), 400, "validation_error")


def test_a_listing_costs_the_same_with_few_deliveries_and_with_many(
    api: Caller, django_assert_num_queries: Any
) -> None:
    path = f"/webhooks/{create(api)['id']}"
    for count in (1, 20):
        for _ in range(count):
            api.post(f"{path}/test")
        with django_assert_num_queries(4):
            api.get(f"{path}/deliveries")


def test_switched_off_nothing_is_sent_until_it_is_switched_on(api: Caller) -> None:
    path = f"/webhooks/{create(api)['id']}"
    api.post(f"{path}/test")
    api.put(path, {"active": False})
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.next_attempt_at) == (DeliveryStatus.DISABLED, None)
    assert_error(api.post(f"{path}/test"), 409, "conflict")
    assert_error(api.post(f"/webhooks/deliveries/{delivery.pk}/redeliver"), 409, "conflict")
    assert_error(api.post(f"{path}/redeliver", {"since": "2020-01-01T00:00:00Z"}), 409, "conflict")
    api.put(path, {"active": True})
    again = api.post(f"/webhooks/deliveries/{delivery.pk}/redeliver")
    assert (again.status_code, again.json()["delivery"]["status"]) == (202, "pending")
    assert again.json()["delivery"]["event_id"] == delivery.event_id


def test_switching_on_again_begins_without_failures(api: Caller) -> None:
    webhook = subscribe(api.account, active=False, disabled_reason=DisabledReason.FAILING, failing_since=timezone.now())
    path = f"/webhooks/{webhook.public_id}"
    assert api.put(path, {"active": False}).json()["webhook"]["disabled_reason"] == "failing"
    body = api.put(path, {"active": True}).json()["webhook"]
    assert (body["active"], body["disabled_reason"]) == (True, None)
    webhook.refresh_from_db()
    assert webhook.failing_since is None


def test_failed_deliveries_are_sent_again(api: Caller) -> None:
    path = f"/webhooks/{create(api)['id']}"
    for _ in range(3):
        api.post(f"{path}/test")
    old, failed, _ = Delivery.objects.order_by("created_at")
    Delivery.objects.filter(pk__in=[old.pk, failed.pk]).update(status=DeliveryStatus.FAILED, next_attempt_at=None)
    answer = api.post(f"{path}/redeliver", {"since": failed.created_at.isoformat(), "status": "failed"})
    assert (answer.status_code, answer.json()) == (202, {"success": True, "count": 1})
    failed.refresh_from_db()
    assert failed.status == DeliveryStatus.PENDING
    for body in ({}, {"since": "yesterday"}, {"since": "2026-01-01T00:00:00Z", "status": "pending"}):
        assert_error(api.post(f"{path}/redeliver", body), 400, "validation_error")


def test_the_former_secret_signs_until_its_grace_ends(api: Caller) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}/rotate"
    body = api.post(path, {"grace_seconds": 60}).json()
    assert body["secret"].startswith("whsec_")
    assert "secret" not in body["webhook"]
    stored = Subscription.objects.get()
    assert (stored.secret, stored.former_secret) == (body["secret"], made["secret"])
    assert stored.former_secret_until is not None
    assert 0 < (stored.former_secret_until - timezone.now()).total_seconds() <= 60
    api.post(path, {"grace_seconds": 0})
    stored.refresh_from_db()
    assert (stored.former_secret, stored.former_secret_until) == (None, None)
    api.post(path)
    stored.refresh_from_db()
    assert stored.former_secret_until is not None
    assert 86_000 < (stored.former_secret_until - timezone.now()).total_seconds() <= 86_400
    for seconds in (-1, 604_801, "60", 1.5):
        assert_error(api.post(path, {"grace_seconds": seconds}), 400, "validation_error")
