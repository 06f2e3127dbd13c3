"""The events of quotas: what they say, which webhooks get them, and with the charge they belong to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Event
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.services import account_lock
from credits import ledger
from credits.amounts import stored_amount
from credits.entries import Purpose
from credits.metered_charges import MeteredCharge, write_charges
from credits.models import Balance, Entry, Service
from namespaces.models import Namespace, Status
from tests.callers import Caller
from tests.webhooks.outbox import published, subscribe
from webhooks import models
from webhooks.models import Delivery

pytestmark = pytest.mark.django_db


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def set_quota(namespace: Namespace, limit: str, *, service: Service = Service.SANDBOX, **fields: Any) -> Balance:
    values = {"overdraft": Decimal(0), "action": "block", "thresholds": [80, 95.5], **fields}
    return ledger.quota_set(namespace=namespace, service=service, limit=Decimal(limit), **values)


def charge(namespace: Namespace, amount: str, service: Service = Service.SANDBOX) -> None:
    ledger.credits_charge(namespace=namespace, service=service, amount=Decimal(amount), purpose=Purpose())


def charge_metered(*charged: tuple[Namespace, str]) -> None:
    charges = [
        MeteredCharge(each.account_id, each.pk, "ws_1", stored_amount(Decimal(amount))) for each, amount in charged
    ]
    write_charges(charges, Service.SANDBOX, timezone.now())


def test_what_a_charge_passes_is_published_in_order(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "10", overdraft=Decimal("0.5"))
    charge(default, "8")
    charge(default, "3.00000001")
    common = {"namespace": "default", "service": "sandbox", "quota_limit": 10, "overdraft": 0.5}
    above = {**common, "percent": 110.0000001, "quota_used": 11.00000001}
    assert published(api.account) == [
        ("namespace.quota.threshold", {**common, "threshold": 80, "percent": 80, "quota_used": 8}),
        ("namespace.quota.threshold", {**above, "threshold": 95.5}),
        ("credits.depleted", above),
        ("namespace.suspended", {"namespace": "default", "reason": "quota"}),
    ]


def test_a_quota_of_another_service_is_depleted_and_suspends_nothing(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "0", service=Service.CDN, thresholds=[])
    charge(default, "1", Service.CDN)
    [(name, data)] = published(api.account)
    assert (name, data["service"], data["percent"], data["quota_limit"]) == ("credits.depleted", "cdn", None, 0)


def test_metered_charges_of_many_namespaces_publish_to_each_account(
    api: Caller, stranger: Caller, default: Namespace
) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    theirs = Namespace.objects.get(account=stranger.account)
    for each in (default, team, theirs):
        set_quota(each, "10", thresholds=[50])
    everything, of_team = subscribe(api.account), subscribe(api.account, namespace_id=team.pk)
    subscribe(stranger.account)
    with transaction.atomic():
        charge_metered((default, "5"), (team, "11"), (theirs, "1"), (default, "5.00000001"), (theirs, "4"))
    facts = [("namespace.quota.threshold", 50), ("credits.depleted", None), ("namespace.suspended", None)]
    for slug in ("default", "team"):
        found = [(name, data) for name, data in published(api.account) if data["namespace"] == slug]
        assert [(name, data.get("threshold")) for name, data in found] == facts
    assert published(stranger.account)[0][1]["percent"] == 50
    assert Delivery.objects.filter(subscription=everything).count() == 6
    assert Delivery.objects.filter(subscription=of_team).count() == 3


def test_metered_charges_cost_the_same_statements_for_one_namespace_and_for_many(
    api: Caller, django_assert_max_num_queries: Any
) -> None:
    subscribe(api.account)
    rows = [Namespace(account=api.account, name=f"n{number}", slug=f"n{number}") for number in range(20)]
    Namespace.objects.bulk_create(rows)
    for row in rows:
        set_quota(row, "10", thresholds=[50])
    with transaction.atomic(), django_assert_max_num_queries(17) as alone:
        charge_metered((rows[0], "11"))
    with transaction.atomic(), django_assert_max_num_queries(17) as together:
        charge_metered(*((row, "11") for row in rows[1:]))
    assert len(together) == len(alone)
    assert models.Event.objects.count() == 3 * 20
    assert Namespace.objects.filter(status=Status.SUSPENDED).count() == 20


def test_a_charge_that_is_rolled_back_publishes_nothing(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "10")
    with pytest.raises(ZeroDivisionError):
        charge_and_fail(default)
    assert not models.Event.objects.exists()
    assert not Entry.objects.exists()
    charge(default, "11")
    assert len(published(api.account)) == 4


@transaction.atomic
def charge_and_fail(namespace: Namespace) -> None:
    charge(namespace, "11")
    raise ZeroDivisionError


@pytest.mark.parametrize("marked", [True, False])
def test_a_namespace_that_is_deleted_has_no_events(api: Caller, default: Namespace, marked: bool) -> None:
    """Its slug may be another namespace's already; what was metered before is charged all the same."""
    subscribe(api.account)
    gone = Namespace.objects.create(account=api.account, name="Gone", slug="gone")
    set_quota(gone, "1")
    copy = Namespace.objects.get(pk=gone.pk)
    if marked:
        Namespace.objects.filter(pk=gone.pk).update(deleted_at=timezone.now())
    else:
        gone.delete()
    with transaction.atomic():
        charge_metered((copy, "5"), (default, "1"))
    assert published(api.account) == []
    assert Entry.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_charge_that_publishes_does_not_wait_for_a_request_that_has_locked_the_account(
    api: Caller, default: Namespace
) -> None:
    """Which may itself wait for the namespace that the charge has locked."""
    subscribe(api.account)
    set_quota(default, "10")
    locked, charged = Event(), Event()

    def request() -> bool:
        try:
            with transaction.atomic():
                account_lock(api.account)
                locked.set()
                return charged.wait(20)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(request)
        locked.wait(20)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        try:
            charge(default, "11")
        finally:
            charged.set()
        assert waited.result()
    assert len(published(api.account)) == 4
