"""Metering records and the credits chart."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal

import pytest
import redis
from django.db import IntegrityError, transaction

from common.redis import redis_client, redis_key
from common.times import from_epoch
from credits.models import Rate, Unit
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.measured import CPU, MeasuredHost
from workspaces.models import Metered, MeterRecord, Workspace
from workspaces.usage import charts, latest_samples
from workspaces.usage.tiers import DAY, HOUR

pytestmark = pytest.mark.django_db

NOW = 1_800_000_000 // DAY * DAY + 12 * HOUR + 30 * 60 + 30
HOUR_NS = 3600 * CPU  # by the first rates one credit


def metered(row: Workspace, at: float, cpu_time_ns: int = HOUR_NS) -> None:
    whose, _ = Metered.objects.get_or_create(
        workspace_id=row.pk, namespace_id=row.namespace_id, account_id=row.account_id
    )
    MeterRecord.objects.create(
        metered=whose, tick=int(at * 1_000_000), period_ms=60_000,
        cpu_time_ns=cpu_time_ns, memory_mb_ms=0, disk_bytes=0, network_bytes=0,
    )  # fmt: skip


def test_each_tick_meters_what_was_used_since_the_last(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(182, row, cpu_time_ns=CPU, disk_read_bytes=1, disk_write_bytes=2, net_rx_bytes=3, net_tx_bytes=4)
    records = list(MeterRecord.objects.filter(metered__workspace_id=row.pk))
    assert [record.cpu_time_ns for record in records] == [CPU, 60 * CPU, 60 * CPU, 60 * CPU]
    assert [record.period_ms for record in records] == [0, 60_000, 60_000, 60_000]
    last = records[-1]
    assert (last.disk_bytes, last.network_bytes, last.memory_mb_ms) == (180, 420, 1024 * 60_000)
    assert (last.metered.account_id, last.metered.namespace_id) == (row.account_id, row.namespace_id)
    assert last.units.cpu_time_minutes == last.units.memory_gb_minutes == 1
    assert last.units.disk_io_gb == Decimal(180) / 10**9
    assert last.units.network_gb == Decimal(420) / 10**9
    assert len({record.tick_id for record in records}) == 4


def test_an_idle_machine_is_metered_for_its_memory_and_a_stopped_one_not_at_all(host: MeasuredHost) -> None:
    row, _ = host.machine(), make_workspace(host.account, host=host.host, status="stopped")
    host.seconds(62)
    (record,) = MeterRecord.objects.all()
    assert (record.metered.workspace_id, record.cpu_time_ns, record.memory_mb_ms) == (row.pk, 0, 1024 * 60_000)


def test_the_tick_is_a_setting(host: MeasuredHost, settings) -> None:
    settings.ENV = settings.ENV.model_copy(update={"metering_seconds": 5})
    host.begin()
    row = host.machine()
    host.seconds(21, row, cpu_time_ns=CPU)
    assert MeterRecord.objects.filter(metered__workspace_id=row.pk).count() == 1 + 4


def test_a_tick_is_metered_once_by_the_database_itself(api: Caller) -> None:
    row = make_workspace(api.account)
    metered(row, NOW)
    with pytest.raises(IntegrityError), transaction.atomic():
        metered(row, NOW)


def test_a_chart_without_use_is_empty(api: Caller) -> None:
    row = make_workspace(api.account)
    body = api.get(f"/workspace/{row.pk}/usage/credits/chart").json()
    assert body == {"success": True, "granularity": "minute", "data": [], "total": 0}


@pytest.mark.parametrize(
    ("age", "granularity", "count"),
    [
        (0, "minute", 1), (60, "minute", 2), (360, "minute", 7), (421, "hour", 1), (3600, "hour", 2),
        (6 * HOUR, "hour", 7), (7 * HOUR, "day", 1), (3 * DAY, "day", 4), (6 * DAY, "day", 7),
    ],
)  # fmt: skip
def test_the_finest_granularity_of_which_seven_points_hold_all(
    api: Caller, age: int, granularity: str, count: int
) -> None:
    row = make_workspace(api.account)
    metered(row, NOW - age)
    if age:
        metered(row, NOW, 2 * HOUR_NS)
    made = charts.compute_chart(row.pk, NOW)
    assert (made["granularity"], len(made["data"])) == (granularity, count)
    assert made["total"] == (3 if age else 1)
    assert made["data"][0]["creditsBurned"] >= 1
    assert all(point["date"].endswith("Z") for point in made["data"])


def test_of_long_use_the_last_seven_days_are_shown(api: Caller) -> None:
    row = make_workspace(api.account)
    for day in range(30):
        metered(row, NOW - day * DAY)
    made = charts.compute_chart(row.pk, NOW)
    assert (made["granularity"], made["total"]) == ("day", 7)
    assert [point["creditsBurned"] for point in made["data"]] == [1.0] * 7


def test_a_chart_is_priced_by_the_rates_that_held_then(api: Caller) -> None:
    row = make_workspace(api.account)
    hour = NOW // HOUR * HOUR
    Rate.objects.create(unit=Unit.VCPU_HOUR, credits=10, effective_from=from_epoch(hour - HOUR + 1800))
    metered(row, hour - HOUR + 60)
    metered(row, hour - HOUR + 1900)
    metered(row, hour + 60)
    assert [point["creditsBurned"] for point in charts.compute_chart(row.pk, NOW)["data"]] == [11.0, 10.0]


def test_a_price_that_begins_within_a_second_holds_for_what_comes_after_it(api: Caller) -> None:
    row = make_workspace(api.account)
    hour = NOW // HOUR * HOUR
    Rate.objects.create(unit=Unit.VCPU_HOUR, credits=10, effective_from=from_epoch(hour + 60.5))
    metered(row, hour + 60.25)
    metered(row, hour + 60.75)
    metered(row, hour + 1200)
    assert charts.compute_chart(row.pk, NOW)["total"] == 21


@pytest.mark.parametrize("ahead", [1, 40, 4000, 3 * DAY])
def test_what_a_clock_that_is_ahead_metered_is_charted_when_its_time_comes(api: Caller, ahead: int) -> None:
    row = make_workspace(api.account)
    metered(row, NOW + ahead)
    assert charts.compute_chart(row.pk, NOW)["data"] == []
    metered(row, NOW - 60)
    assert charts.compute_chart(row.pk, NOW)["data"][0]["creditsBurned"] == 1
    assert charts.compute_chart(row.pk, NOW + ahead)["total"] == 2


def test_whose_use_it_is_stands_once_for_all_its_records(host: MeasuredHost) -> None:
    row, other = host.machine(), host.machine()
    host.seconds(130)
    assert {who.workspace_id: who.records.count() for who in Metered.objects.all()} == {row.pk: 2, other.pk: 2}
    elsewhere = Namespace.objects.create(account=host.account, name="Other", slug="other")
    Workspace.objects.filter(pk=row.pk).update(namespace=elsewhere)
    host.seconds(60)
    (moved,) = Metered.objects.filter(namespace_id=elsewhere.pk)
    assert (moved.workspace_id, moved.account_id, moved.records.count()) == (row.pk, row.account_id, 1)
    assert sum(record.period_ms for record in MeterRecord.objects.filter(metered__workspace_id=row.pk)) == 180_000


def test_the_chart_is_cached_for_a_minute(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_workspace(api.account)
    metered(row, time.time())
    first = api.get(f"/workspace/{row.pk}/usage/credits/chart").json()
    assert first["total"] == 1
    metered(row, time.time() + 0.001)
    assert api.get(f"/workspace/{row.pk}/usage/credits/chart").json() == first
    assert 0 < redis_client().ttl(redis_key(f"usage:{row.pk}:chart")) <= 60
    redis_client().delete(redis_key(f"usage:{row.pk}:chart"))  # as the minute does
    assert api.get(f"/workspace/{row.pk}/usage/credits/chart").json()["total"] == 2

    def away() -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(latest_samples, "redis_client", away)
    assert api.get(f"/workspace/{row.pk}/usage/credits/chart").json()["total"] == 2


def test_the_chart_of_a_machine_that_runs_adds_up_to_what_it_used(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    Rate.objects.filter(unit=Unit.GB_HOUR).update(effective_from=from_epoch(host.wall) + timedelta(days=1))
    host.seconds(300, row, cpu_time_ns=36 * CPU)
    host.sampler.flush(everything=True)
    body = api.get(f"/workspace/{row.pk}/usage/credits/chart").json()
    assert body["total"] == pytest.approx(3.0)
    assert sum(point["creditsBurned"] for point in body["data"]) == pytest.approx(3.0)
