"""`credits.usage`: for each workspace with use and billing cycle what was charged in it, once, whatever dies."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from credits.models import Entry
from namespaces.models import Namespace
from tests.callers import Caller
from tests.killed_process import killed_process
from tests.webhooks.outbox import subscribe
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.measured import CPU, MeasuredHost
from tests.workspaces.usage.test_charging import GB_HOUR, HOUR_NS, metered, record
from tests.workspaces.usage.test_charging_killed import agree
from webhooks.models import Delivery, Event
from workspaces.charging import billing
from workspaces.charging import services as charging
from workspaces.models import BillingCycle, CycleUsage, Metered
from workspaces.rows import delete_row

pytestmark = pytest.mark.django_db(transaction=True)

MICRO = 10**6
BEGIN = datetime(2026, 3, 1, 10, tzinfo=UTC)


class Clock:
    """The time as this process reads it."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.ticks = 0

    def set(self, minutes: float) -> None:
        """So many minutes after BEGIN."""
        self.now = BEGIN + timedelta(minutes=minutes)

    def charge(self, owner: Metered, hours: int = 1, *, minutes: float | None = None, **amounts: int) -> None:
        """Meter so many hours of CPU time, with the tick of now or of another time, and charge them."""
        at = self.now if minutes is None else BEGIN + timedelta(minutes=minutes)
        self.ticks += 1
        tick = int(at.timestamp()) * MICRO + self.ticks
        record(owner, tick, **{"cpu_time_ns": hours * HOUR_NS, **amounts})
        assert charging.charge_metered() == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timezone, "now", lambda: made.now)
    return made


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def reports() -> list[dict[str, Any]]:
    """The data of all events, by period and workspace."""
    found = [event.data for event in Event.objects.all()]
    return sorted(found, key=lambda data: (data["period_start"], data["workspace_id"]))


def credits_by_period() -> list[tuple[str, str, float]]:
    found = [(data["workspace_id"], data["period_start"][11:16], data["credits_used"]) for data in reports()]
    return sorted(found)


def test_a_cycle_is_reported_when_it_is_over(api: Caller, default: Namespace, clock: Clock) -> None:
    subscription = subscribe(api.account, "credits.usage")
    row = make_workspace(api.account, name="mine")
    clock.set(5)
    amounts = {"memory_mb_ms": GB_HOUR, "disk_bytes": 2 * 10**9, "network_bytes": 5 * 10**8}
    clock.charge(metered(default, row.pk), **amounts)
    clock.charge(metered(default, row.pk))
    clock.set(59.9)
    assert billing.cycles_close() == 0
    clock.set(60)
    assert [billing.cycles_close() for _ in range(2)] == [1, 0]
    assert reports() == [
        {
            "namespace": "",
            "workspace_id": row.pk,
            "workspace_name": "mine",
            "period_start": "2026-03-01T10:00:00.000Z",
            "period_end": "2026-03-01T11:00:00.000Z",
            "credits_used": float(Entry.objects.aggregate(sum=Sum("amount"))["sum"]),
            "usage": {"cpu_time_minutes": 120.0, "memory_gb_minutes": 60.0, "disk_io_gb": 2.0, "network_gb": 0.5},
        }
    ]
    assert Delivery.objects.get().subscription_id == subscription.pk
    cycle = BillingCycle.objects.get()
    assert (cycle.workspaces, cycle.credits, cycle.closed_at) == (1, Decimal("2.57"), clock.now)
    assert not CycleUsage.objects.exists()
    assert agree()


def test_what_is_charged_late_is_in_a_later_cycle_and_nothing_twice(
    api: Caller, default: Namespace, clock: Clock
) -> None:
    subscribe(api.account)
    clock.charge(metered(default))
    clock.set(60)
    clock.charge(metered(default), minutes=59)
    billing.cycles_close()
    clock.charge(metered(default), minutes=5)
    clock.set(300)
    clock.charge(metered(default))
    billing.cycles_close()
    clock.set(360)
    billing.cycles_close()
    assert credits_by_period() == [("ws_1", "10:00", 1.0), ("ws_1", "11:00", 2.0), ("ws_1", "15:00", 1.0)]
    assert agree()


def test_workspaces_and_namespaces_are_apart(api: Caller, default: Namespace, stranger: Caller, clock: Clock) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    subscribe(api.account, namespace_id=other.pk)
    for owner in (metered(default), metered(other), metered(other, "ws_2")):
        clock.charge(owner)
    clock.charge(metered(Namespace.objects.get(account=stranger.account), "ws_3"))
    clock.set(60)
    assert billing.cycles_close() == 4
    assert sorted(Event.objects.values_list("namespace_id", "data__workspace_id")) == [
        (other.pk, "ws_1"),
        (other.pk, "ws_2"),
    ]


def test_without_a_subscription_nothing_is_written(default: Namespace, clock: Clock) -> None:
    clock.charge(metered(default))
    clock.set(60)
    assert billing.cycles_close() == 1
    assert not Event.objects.exists()
    assert BillingCycle.objects.get().closed_at == clock.now


def test_a_deleted_workspace_is_reported_by_its_last_name(api: Caller, host: MeasuredHost) -> None:
    subscribe(api.account, "credits.usage")
    row = host.machine(name="first")
    host.seconds(3, row, cpu_time_ns=CPU)
    host.flush()
    owner = Metered.objects.get()
    assert (owner.workspace_name, owner.namespace_slug) == ("first", "default")
    row.name = "renamed"
    row.save()
    delete_row(row)
    assert charging.charge_metered()
    BillingCycle.objects.update(end=int(timezone.now().timestamp()))
    assert billing.cycles_close() == 1
    (report,) = reports()
    assert (report["workspace_name"], report["namespace"], report["workspace_id"]) == (
        "renamed",
        "default",
        owner.workspace_id,
    )


def test_a_workspace_that_was_metered_after_its_deletion_has_a_name(api: Caller, host: MeasuredHost) -> None:
    row = host.machine(name="short")
    host.seconds(3, row, cpu_time_ns=CPU)
    delete_row(row)
    host.flush()
    assert Metered.objects.get().workspace_name == "short"


def test_a_closing_that_is_killed_anywhere_reports_each_workspace_once(api: Caller, default: Namespace) -> None:
    subscribe(api.account, "credits.usage")
    for number in range(5):
        record(metered(default, f"ws_{number}"), cpu_time_ns=(number + 1) * HOUR_NS)
    charging.charge_metered()
    BillingCycle.objects.update(end=0)
    statement, kills = 0, Counter[int]()
    with killed_process() as process:
        while process.killed_at(statement := statement + 1, "workspaces.charging.billing.cycles_close", BATCH=2):
            cycle = BillingCycle.objects.get()
            if cycle.workspaces not in kills and cycle.workspaces:
                statement = 0  # a batch was committed: the next one from its first statement on
            kills[cycle.workspaces] += 1
            assert Event.objects.count() == Delivery.objects.count() == cycle.workspaces
            assert CycleUsage.objects.count() == 5 - cycle.workspaces
            assert agree()
    assert kills.keys() == {0, 2, 4, 5}
    assert min(kills[0], kills[2], kills[4]) > 8
    assert [data["credits_used"] for data in reports()] == [1, 2, 3, 4, 5]
    assert BillingCycle.objects.get().closed_at


def test_two_closings_at_once_report_each_workspace_once(
    api: Caller, default: Namespace, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing, "BATCH", 3)
    subscribe(api.account)
    for number in range(30):
        clock.charge(metered(default, f"ws_{number:02}"))
    clock.set(60)

    def work() -> None:
        try:
            billing.cycles_close()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(data["workspace_id"] for data in reports()) == [f"ws_{number:02}" for number in range(30)]
    assert agree()


def test_after_a_clock_that_was_set_back_a_reported_cycle_stays_as_it_is(
    api: Caller, default: Namespace, clock: Clock
) -> None:
    subscribe(api.account)
    clock.charge(metered(default))
    clock.set(60)
    billing.cycles_close()
    clock.set(30)
    clock.charge(metered(default))
    clock.set(90)
    clock.charge(metered(default))
    clock.set(120)
    billing.cycles_close()
    assert credits_by_period() == [("ws_1", "10:00", 1.0), ("ws_1", "11:00", 2.0)]


def test_after_a_clock_that_was_far_ahead_cycles_have_the_times_of_the_clock_again(
    api: Caller, default: Namespace, clock: Clock
) -> None:
    subscribe(api.account)
    clock.set(60 * 48 + 5)
    clock.charge(metered(default))
    clock.set(65)
    clock.charge(metered(default))
    assert billing.cycles_close() == 1, "nothing is added any more to the cycle of the day after tomorrow"
    clock.set(120)
    assert billing.cycles_close() == 1
    assert credits_by_period() == [("ws_1", "10:00", 1.0), ("ws_1", "11:00", 1.0)]
    assert agree()


def test_a_new_length_counts_from_the_next_cycle_on(
    api: Caller, default: Namespace, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(api.account)
    clock.charge(metered(default))
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"billing_seconds": 600}))
    clock.set(59)
    clock.charge(metered(default))
    clock.set(65)
    clock.charge(metered(default))
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"billing_seconds": 86400}))
    clock.set(72)
    clock.charge(metered(default))
    clock.set(60 * 24)
    billing.cycles_close()
    periods = [(data["period_start"][8:16], data["period_end"][8:16]) for data in reports()]
    assert periods == [("01T10:00", "01T11:00"), ("01T11:00", "01T11:10"), ("01T11:10", "02T00:00")]
    assert [data["credits_used"] for data in reports()] == [2, 1, 1]
