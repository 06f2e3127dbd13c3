"""Amounts and sums that no column of 64 bits holds: the pass goes on, the others' money is right, staff see it."""

from __future__ import annotations

import time
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from accounts.actors import Actor
from accounts.scopes import Scope
from common.exact_sums import exact_sum
from credits.amounts import MAX_CREDITS, stored_amount
from credits.models import MAX_PRICE, Balance, Rate, Service, Unit
from credits.prices import PriceTable
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.test_charging import HOUR_NS, TICK, metered, record
from workspaces.charging import services as charging
from workspaces.charging.billing import cycles_close
from workspaces.charging.records import MICRO, SUMS
from workspaces.charging.selectors import usage_units
from workspaces.models import BillingCycle, CycleUsage, NamespaceHour, NamespaceTick, Usage, UsagePoint, WorkspaceHour
from workspaces.usage.amounts import SUMS as POINT_SUMS
from workspaces.usage.selectors import window_by_workspace
from workspaces.usage.tiers import MINUTES

pytestmark = pytest.mark.django_db(transaction=True)

LARGEST = 2**63 - 1


@pytest.fixture
def other(stranger: Caller) -> Namespace:
    return Namespace.objects.get(account=stranger.account)


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def use(namespace: Namespace, tick: int, workspace: str = "ws_1", **amounts: int) -> None:
    record(metered(namespace, workspace), TICK + tick, **amounts)


def used(namespace: Namespace) -> Decimal:
    return Balance.objects.get(namespace_id=namespace.pk, service=Service.SANDBOX).used


def drifts() -> list[str]:
    out = StringIO()
    try:
        call_command("ledger_check", stdout=out)
    except CommandError:
        return out.getvalue().splitlines()
    return []


def close_cycles() -> int:
    BillingCycle.objects.update(end=int(timezone.now().timestamp()) - 1)
    return cycles_close()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_sum_that_no_column_holds_stops_no_pass(default: Namespace, other: Namespace, at_once: bool) -> None:
    for tick in range(3):
        use(default, tick, memory_mb_ms=2**62)
        use(other, tick, "ws_other", cpu_time_ns=HOUR_NS)
        if not at_once:
            assert charging.charge_metered() == 2
    assert charging.charge_metered() == (6 if at_once else 0)
    assert used(other) == 3
    for model in (WorkspaceHour, NamespaceHour, CycleUsage):
        assert LARGEST in model.objects.values_list("memory_mb_ms", flat=True)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT memory_mb_ms FROM {WorkspaceHour._meta.db_table}")
        assert {type(value) for (value,) in cursor.fetchall()} == {int}
    sentences = drifts()
    assert sentences
    assert all(default.pk in sentence for sentence in sentences), "the others' sums are right"
    assert close_cycles() == 2


def test_an_amount_that_ran_backwards_is_no_refund_and_stops_no_pass(default: Namespace, other: Namespace) -> None:
    use(default, 0, cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    use(default, 1, cpu_time_ns=-5 * HOUR_NS, memory_mb_ms=LARGEST)
    use(other, 1, "ws_other", cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 2
    assert (used(other), used(default) >= 1) == (1, True)
    assert PriceTable.load().stored_price(TICK, -HOUR_NS, 0, 0, 0) == 0


def test_reports_of_a_sum_that_no_column_holds_are_answered(default: Namespace) -> None:
    for tick in range(3):
        use(default, tick, memory_mb_ms=2**62)
    charging.charge_metered()
    first = NamespaceTick.objects.order_by("tick")[0].tick // (3600 * MICRO) * 3600 * MICRO
    _, total = usage_units(default.pk, first, first + 48 * 3600 * MICRO, by_day=True)
    assert (total.records, total.sums[2]) == (3, LARGEST)


@pytest.fixture
def dear(db: None) -> None:
    Rate.objects.create(unit=Unit.DISK_GB, credits=MAX_PRICE, effective_from="2025-01-01T00:00:00Z")


def test_a_record_costs_what_a_column_holds_at_most(dear: None) -> None:
    assert PriceTable.load().stored_price(TICK, 0, 0, LARGEST, 0) == LARGEST
    assert PriceTable.load().price(TICK, 0, 0, 10**9, 0) == MAX_PRICE


def test_charges_that_no_column_holds_fill_their_balance_and_the_others_are_charged(
    default: Namespace, other: Namespace, dear: None
) -> None:
    for tick in range(3):
        use(default, tick, disk_bytes=LARGEST)
        use(other, tick, "ws_other", cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 6
    assert (used(other), used(default)) == (3, MAX_CREDITS)
    sentences = drifts()
    assert all(default.pk in sentence or sentence.startswith("billing cycles") for sentence in sentences)
    use(other, 4, "ws_other", cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 1
    assert close_cycles() == 2
    assert BillingCycle.objects.order_by("pk")[0].credits == MAX_CREDITS
    drifts()  # comes to its end


def test_a_sum_of_credits_may_be_larger_than_a_column(default: Namespace) -> None:
    for number in range(3):
        sums = dict.fromkeys(SUMS, 0) | {"credits": MAX_CREDITS}
        NamespaceHour.objects.create(namespace_id=default.pk, start=number * 3600, **sums)
    found = NamespaceHour.objects.aggregate(sum=exact_sum("credits"))
    assert found == {"sum": 3 * stored_amount(MAX_CREDITS)}
    assert type(found["sum"]) is int
    assert NamespaceHour.objects.filter(start=-1).aggregate(sum=exact_sum("credits")) == {"sum": 0}


def test_the_chart_of_amounts_that_no_column_holds_is_answered(api: Caller, default: Namespace) -> None:
    row, now = make_workspace(api.account), int(time.time())
    for second in range(2):
        record(metered(default, row.pk), (now - 30 + second) * MICRO, memory_mb_ms=2**62)
    answer = api.get(f"/workspace/{row.pk}/usage/credits/chart")
    assert answer.status_code == 200, answer.content
    assert answer.json()["total"] > 10**9


def test_a_window_of_amounts_that_no_column_holds_is_answered(api: Caller) -> None:
    row, now = make_workspace(api.account), time.time()
    counted, _ = Usage.objects.get_or_create(workspace=row)
    sums = dict.fromkeys(POINT_SUMS, 0) | {"cpu_time_ns": 2**62}
    for minutes in (3, 2):
        start = int(now) // 60 * 60 - 60 * minutes
        UsagePoint.objects.create(usage=counted, tier=MINUTES.number, start=start, **sums)
    found = window_by_workspace(Actor(api.account, Scope.ACCOUNT, "cred", "label"), now - 900, now, now)
    assert found[row.pk]["total_cpu_time_ns"] == 2**63
