"""Credits: what is held, what a call costs, what is refused; events and the receiver that a request names."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from standardwebhooks import Webhook

from assist.models import Call, DayCount
from assist.services import NewApiKey, api_key_create
from credits.models import Balance, Entry, Hold, OverdraftAction, Rate, Service, Unit
from namespaces.models import Namespace
from tests.assist.conftest import BODIES, assert_refused, called, header
from tests.assist.model_server import Exchange, ModelServer
from tests.callers import Caller
from tests.webhooks.outbox import published, subscribe
from tests.webhooks.receiver import Receiver, Reply, Sending
from webhooks import direct, subscriptions
from webhooks.models import Delivery, Subscription

pytestmark = pytest.mark.django_db(transaction=True)


def price(unit: Unit, credits: str) -> None:
    Rate.objects.create(unit=unit, credits=Decimal(credits), effective_from=timezone.now() - timedelta(hours=1))


def quota(api: Caller, limit: str, overdraft: str = "0") -> Balance:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    return Balance.objects.create(
        account_id=api.account.pk,
        namespace_id=namespace.pk,
        service=Service.AI,
        quota_limit=Decimal(limit),
        overdraft=Decimal(overdraft),
        on_overdraft_action=OverdraftAction.BLOCK,
    )


def test_a_call_costs_its_rate_and_tokens_cost_nothing_until_staff_set_a_rate(
    key: NewApiKey, model: ModelServer
) -> None:
    called(key)
    entry = Entry.objects.get()
    assert (entry.amount, entry.description) == (Decimal(1), "Code assistance: 1000 tokens.")


def test_tokens_cost_their_rate_as_the_server_reports_them(key: NewApiKey, model: ModelServer) -> None:
    price(Unit.ASSIST_TOKENS, "2")
    called(key)
    assert Entry.objects.get().amount == Decimal(3)
    balance = Balance.objects.get()
    assert (balance.used, balance.held, Hold.objects.count()) == (Decimal(3), 0, 0)


def test_tokens_of_a_second_try_are_charged_too(key: NewApiKey, model: ModelServer) -> None:
    price(Unit.ASSIST_TOKENS, "2")
    model.script = lambda exchange: exchange.answer("prose") if exchange.number == 1 else exchange.good()
    called(key)
    assert Entry.objects.get().amount == Decimal(5)


def test_where_a_server_reports_no_tokens_they_are_counted_by_length_and_the_entry_says_so(
    key: NewApiKey, model: ModelServer
) -> None:
    price(Unit.ASSIST_TOKENS, "1000")
    text = json.dumps({"code": "x" * 4000, "explanation": "", "suggestions": []})
    model.script = lambda exchange: exchange.answer(text, usage=None)
    called(key)
    entry = Entry.objects.get()
    assert "counted by length" in entry.description
    assert 1001 < entry.amount < 2000


@pytest.mark.parametrize("usage", [{"prompt_tokens": 10**11, "completion_tokens": 10**11}, {"prompt_tokens": -5}, "x"])
def test_no_server_can_make_a_call_cost_more_than_was_held(key: NewApiKey, model: ModelServer, usage: Any) -> None:
    price(Unit.ASSIST_TOKENS, "1")
    held: list[Decimal] = []

    def script(exchange: Exchange) -> None:
        held.append(Hold.objects.get().amount)
        exchange.answer(json.dumps({"code": "c", "explanation": "e", "suggestions": []}), usage=usage)

    model.script = script
    assert called(key).status == 200
    assert 0 < Entry.objects.get().amount <= held[0]


def test_without_credits_nothing_is_asked_and_nothing_counts(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    quota(api, "0.5")
    found = called(key)
    error = assert_refused(found, 402, "QUOTA_EXCEEDED")
    assert error["details"] == {
        "namespace": "default",
        "service": "ai",
        "quota_used": 0.0,
        "held": 0.0,
        "quota_limit": 0.5,
        "overdraft": 0.0,
    }
    assert header(found, "X-RateLimit-Remaining") == "1000"
    assert DayCount.objects.count() == Call.objects.count() == Hold.objects.count() == len(model.exchanges) == 0


def test_the_first_call_without_credits_is_exhaustion_and_announced_once(
    api: Caller, key: NewApiKey, model: ModelServer
) -> None:
    quota(api, "1.5")
    called(key)
    subscribe(api.account)
    for _ in range(3):
        assert_refused(called(key), 402, "QUOTA_EXCEEDED")
    [(name, data)] = published(api.account)
    assert (name, data["service"], data["quota_used"]) == ("credits.depleted", "ai", 1)
    assert DayCount.objects.get().used == 1


def test_in_the_overdraft_a_call_carries_the_warning(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    quota(api, "1", "10")
    called(key)
    called(key)
    assert header(called(key), "X-Credit-Warning") == "overdraft; service=ai; used=2; limit=1"


def test_the_namespace_of_a_key_pays(api: Caller, model: ModelServer) -> None:
    space = Namespace.objects.create(account=api.account, name="Other", slug="other")
    key = api_key_create(account=api.account, name="", namespace=space, actor="test")
    called(key)
    assert Balance.objects.get().namespace_id == space.pk


def test_the_ledger_has_no_differences_after_calls_of_all_ends(key: NewApiKey, model: ModelServer) -> None:
    price(Unit.ASSIST_TOKENS, "0.00000001")
    for script in (Exchange.good, lambda exchange: exchange.answer("prose"), lambda exchange: exchange.status(401)):
        model.script = script
        called(key)
    call_command("ledger_check")  # raises where something differs


@pytest.mark.parametrize(
    ("route", "event"),
    [("generate", "generation.complete"), ("debug", "generation.complete"), ("optimize", "optimization.complete")],
)
def test_a_finished_call_is_published_without_anything_that_was_said(
    api: Caller, key: NewApiKey, model: ModelServer, route: str, event: str
) -> None:
    subscribe(api.account)
    called(key, route, **{"X-Request-ID": "req_of_the_test"})
    ((type, data),) = published(api.account)
    assert type == event
    expected = {"request_id": "req_of_the_test", "kind": route, "tokens": 1000}
    assert data == {
        **expected,
        "duration_ms": data["duration_ms"],
        **({"language": "python"} if route == "generate" else {}),
    }


def test_a_failed_call_is_not_published(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    subscribe(api.account)
    model.script = lambda exchange: exchange.answer("prose")
    called(key)
    assert published(api.account) == []


def test_a_request_names_its_own_receiver_and_the_keys_secret_signs(
    api: Caller, key: NewApiKey, model: ModelServer, receiver: Receiver, hooks: Sending
) -> None:
    for _ in range(2):
        assert called(key, body={**BODIES["generate"], "webhook_url": receiver.url}).status == 200
    hooks.settle()
    assert [len(set(receiver.event_ids())), Subscription.objects.count()] == [2, 1]
    for each in receiver.received:
        verified = Webhook(key.webhook_secret).verify(each.body, dict(each.headers))
        assert (verified["event"], verified["data"]["kind"]) == ("generation.complete", "generate")
    assert "webhook_url" not in json.dumps(model.exchanges[0].body)
    # It is no webhook of the account: in no list, and it wants nothing else.
    assert api.get("/webhooks").json()["webhooks"] == []
    called(key)
    assert Delivery.objects.count() == 2


def test_events_choose_what_is_sent_to_the_receiver(key: NewApiKey, model: ModelServer, receiver: Receiver) -> None:
    body = {**BODIES["generate"], "webhook_url": receiver.url, "events": ["optimization.complete"]}
    assert called(key, body=body).status == 200
    assert Delivery.objects.count() == 0


def test_a_receiver_that_had_answered_410_is_asked_again_when_it_is_named_again(
    key: NewApiKey, model: ModelServer, receiver: Receiver, hooks: Sending
) -> None:
    body = {**BODIES["generate"], "webhook_url": receiver.url}
    receiver.respond = lambda _: Reply(410)
    called(key, body=body)
    hooks.settle()
    assert Subscription.objects.get().active is False
    receiver.respond = lambda _: Reply()
    called(key, body=body)
    hooks.settle()
    assert list(Delivery.objects.order_by("pk").values_list("status", flat=True)) == ["disabled", "delivered"]


def test_receivers_that_are_not_used_any_more_are_deleted(
    key: NewApiKey, model: ModelServer, receiver: Receiver, hooks: Sending
) -> None:
    called(key, body={**BODIES["generate"], "webhook_url": receiver.url})
    Subscription.objects.update(updated_at=timezone.now() - timedelta(days=2))
    assert direct.delete_unused_receivers() == 0  # its delivery is pending
    hooks.settle()
    Subscription.objects.update(updated_at=timezone.now() - timedelta(days=2))
    assert [direct.delete_unused_receivers(), direct.delete_unused_receivers()] == [1, 0]
    found = Subscription.objects.get()
    assert (found.url, found.secret, found.direct_key) == ("", "", None)
    called(key, body={**BODIES["generate"], "webhook_url": receiver.url})
    Subscription.objects.filter(deleted_at__isnull=False).update(deleted_at=timezone.now() - timedelta(hours=1))
    assert subscriptions.deleted_subscriptions_remove() == 1
    assert Subscription.objects.count() == 1
