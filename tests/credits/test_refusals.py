"""The first refusal for want of room is exhaustion: announced once until re-armed, by a request that is rolled back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from common.errors import QuotaExceeded
from credits import holds, ledger
from credits.enforcement import require_credits
from credits.models import Balance, Hold, QuotaDefault, Service
from credits.refusals import refusals_announced
from namespaces.models import Namespace
from tests.callers import Caller
from tests.credits.test_ledger import at_once, balance, charge, default, set_quota
from tests.webhooks.outbox import passed_thresholds, published, subscribe

__all__ = ["default"]
pytestmark = pytest.mark.django_db(transaction=True)
CDN = Service.CDN


@refusals_announced()
@transaction.atomic
def spend(namespace: Namespace, amount: str, key: str) -> Hold:
    """As a request does that holds what it will cost."""
    require_credits(namespace, CDN)
    return holds.credits_hold(namespace=namespace, service=CDN, amount=Decimal(amount), key=key)


def refused(namespace: Namespace, amount: str, key: str) -> dict[str, Any]:
    with pytest.raises(QuotaExceeded) as error:
        spend(namespace, amount, key)
    assert error.value.details is not None
    return error.value.details


def test_a_refused_hold_is_exhaustion_once_until_the_quota_is_set_or_reset(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "10", service=CDN, thresholds=[])
    spend(default, "8", "first")
    assert published(api.account) == []
    for number in range(3):
        assert refused(default, "3", f"more {number}")["held"] == 8
    common = {"namespace": "default", "service": "cdn", "percent": 0, "quota_used": 0, "quota_limit": 10}
    assert published(api.account) == [("credits.depleted", {**common, "overdraft": 0})]
    set_quota(default, "9", service=CDN, thresholds=[])
    refused(default, "3", "after it was set")
    refused(default, "3", "and again")
    ledger.quota_reset(namespace=default, service=CDN, actor="a test")
    refused(default, "3", "after it was reset")
    assert passed_thresholds(api.account) == ["depleted"] * 3
    assert Hold.objects.count() == 1


def test_a_charge_after_a_refusal_announces_it_no_second_time(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "1", service=CDN, thresholds=[])
    refused(default, "2", "call")
    charge(default, "5", CDN)
    refused(default, "2", "call")
    assert passed_thresholds(api.account) == ["depleted"]


def test_the_hard_block_of_a_quota_that_was_lowered_is_exhaustion_too(api: Caller, default: Namespace) -> None:
    charge(default, "5", CDN)
    subscribe(api.account)
    set_quota(default, "4", service=CDN, thresholds=[])
    assert passed_thresholds(api.account) == []
    refused(default, "0", "call")
    assert passed_thresholds(api.account) == ["depleted"]


def test_a_default_quota_without_room_for_the_first_request_is_exhausted(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    QuotaDefault.objects.create(account_id=api.account.pk, service=CDN, quota_limit=Decimal(1))
    for _ in range(2):
        refused(default, "2", "call")
    assert passed_thresholds(api.account) == ["depleted"]
    assert (balance(default, CDN).quota_limit, balance(default, CDN).held) == (1, 0)


def test_a_quota_that_was_raised_before_its_refusal_is_announced_is_not_exhausted(
    api: Caller, default: Namespace
) -> None:
    subscribe(api.account)
    set_quota(default, "1", service=CDN)

    @refusals_announced()
    def refuse_and_raise() -> None:
        try:
            holds.credits_hold(namespace=default, service=CDN, amount=Decimal(2), key="call")
        finally:
            set_quota(default, "5", service=CDN)

    with pytest.raises(QuotaExceeded):
        refuse_and_raise()
    assert passed_thresholds(api.account) == []
    assert not Balance.objects.get().depleted_fired


def test_of_many_refusals_at_once_one_is_announced(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "2", service=CDN)
    outcomes = at_once(20, lambda number: spend(default, "2", f"call-{number}"))
    assert (outcomes.count("done"), outcomes.count("CreditsUsedUp")) == (1, 19)
    assert passed_thresholds(api.account) == ["depleted"]
