"""Totals, activity, tracking, deletion (specification, Usage and activity)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
import redis
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.scopes import Scope
from common.redis import redis_client, redis_key
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.measured import CPU, MeasuredHost, cpu_total, metered_cpu, points
from tests.workspaces.usage.test_series import series, stored
from workspaces.crud.services import remove_workspace_row
from workspaces.models import Activity, MeterRecord, Usage, UsagePoint, Workspace
from workspaces.states import Status
from workspaces.usage import latest_samples, selectors
from workspaces.usage.tiers import HOUR, TIERS

pytestmark = pytest.mark.django_db

TOTALS = {"total_cpu_time_ns", "total_disk_read", "total_disk_write", "total_net_rx", "total_net_tx"}


def totals(api: Caller, row: Workspace) -> dict[str, int]:
    body = api.get(f"/workspace/{row.pk}/usage/totals").json()
    assert (body["success"], body["workspace_id"]) == (True, row.pk)
    assert set(body["usage"]) == TOTALS
    return body["usage"]


def window(begin: float, end: float | None = None) -> str:
    moments = {"from": begin, **({"to": end} if end else {})}
    return "?" + "&".join(f"{key}={quote(datetime.fromtimestamp(at, UTC).isoformat())}" for key, at in moments.items())


def test_totals_are_up_to_date_between_ticks_and_never_go_back(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    before = 0
    for _ in range(130):
        host.seconds(1, row, cpu_time_ns=CPU, net_tx_bytes=10)
        now = totals(api, row)
        assert now["total_cpu_time_ns"] == before + CPU
        before = now["total_cpu_time_ns"]
    assert now["total_net_tx"] == 1300
    assert MeterRecord.objects.filter(metered__workspace_id=row.pk).count() == 1 + 2


def test_all_usage_maps_every_workspace_to_its_totals_and_sums_them(
    host: MeasuredHost, api: Caller, stranger: Caller
) -> None:
    one, other, stopped = host.machine(), host.machine(), make_workspace(api.account, status=Status.STOPPED)
    make_workspace(stranger.account)
    host.seconds(65, one, cpu_time_ns=CPU)
    host.seconds(5, other, cpu_time_ns=3 * CPU)
    body = api.get("/workspace/usage").json()
    assert set(body["usage"]) == {one.pk, other.pk, stopped.pk}
    assert body["usage"][one.pk]["total_cpu_time_ns"] == 65 * CPU
    assert body["usage"][other.pk]["total_cpu_time_ns"] == 15 * CPU
    assert body["usage"][stopped.pk] == dict.fromkeys(TOTALS, 0)
    assert body["total"]["total_cpu_time_ns"] == 80 * CPU
    assert set(body["total"]) == TOTALS


def test_lists_reach_as_far_as_the_credential(api: Caller, scoped: Callable[..., Caller]) -> None:
    elsewhere = Namespace.objects.create(account=api.account, name="Other", slug="other")
    here, there = make_workspace(api.account), make_workspace(api.account, namespace=elsewhere)
    Activity.objects.create(account=api.account, workspace_id=here.pk, action="started")
    Activity.objects.create(account=api.account, workspace_id=there.pk, action="started")
    Activity.objects.create(account=api.account, workspace_id="ws_gone", action="deleted")
    for caller, seen, returned in (
        (api, {here.pk, there.pk}, {here.pk, there.pk, "ws_gone"}),
        (scoped(api, Scope.NAMESPACE, namespace_id=elsewhere.pk, namespace_slug="other"), {there.pk}, {there.pk}),
        (scoped(api, Scope.WORKSPACE, namespace_id=here.namespace_id, workspace_id=here.pk), {here.pk}, {here.pk}),
    ):
        assert set(caller.get("/workspace/usage").json()["usage"]) == seen
        body = caller.get("/workspace/activity").json()
        assert set(body["window_aggregated"]) == seen
        assert set(body["history"]) == returned


@pytest.mark.parametrize("path", ["/workspace/usage", "/workspace/activity", "/workspace/activity?from=2026-01-01"])
def test_lists_take_as_many_queries_for_many_workspaces_as_for_few(api: Caller, path: str) -> None:
    def grow(count: int) -> int:
        for _ in range(count):
            row = make_workspace(api.account)
            stored(row, 2, time.time() - 120)
            Activity.objects.create(account=api.account, workspace_id=row.pk, action="started")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert api.get(path).status_code == 200
        return len(queries)

    grow(1)
    few = grow(2)
    assert grow(100) == few


def test_activity_holds_what_happened_within_the_window_newest_first(api: Caller) -> None:
    row = make_workspace(api.account)
    now = datetime.now(UTC)
    for hours, event in ((50, "created"), (3, "stopped"), (1, "started"), (-1, "later")):
        Activity.objects.create(
            account=api.account, workspace_id=row.pk, action=event, actor="me", created_at=now - timedelta(hours=hours)
        )
    body = api.get("/workspace/activity").json()
    assert [entry["event"] for entry in body["history"][row.pk]] == ["started", "stopped"]
    assert set(body["history"][row.pk][0]) == {"at", "event", "actor", "detail"}
    assert (body["truncated"], body["success"]) == (False, True)
    asked = api.get("/workspace/activity" + window(now.timestamp() - 60 * HOUR, now.timestamp() - 2 * HOUR)).json()
    assert [entry["event"] for entry in asked["history"][row.pk]] == ["stopped", "created"]
    assert asked["from"].endswith("Z")


def test_activity_sums_what_was_used_within_the_window(host: MeasuredHost, api: Caller) -> None:
    row, idle = host.machine(), make_workspace(api.account)
    hour = TIERS[4].floor(time.time()) - 10 * HOUR
    stored(row, 4, hour, cpu_time_ns=1000, net_rx_bytes=7, observed_ms=90_500)
    stored(row, 4, hour - 30 * HOUR, cpu_time_ns=50)
    stored(row, 3, hour + 2 * HOUR, cpu_time_ns=200, observed_ms=1000)
    stored(row, 3, hour, cpu_time_ns=9999)  # in the hour already
    stored(row, 2, hour + 3 * HOUR, cpu_time_ns=30, observed_ms=1000)
    host.wall = time.time() - 20
    host.seconds(20, row, disk_write_bytes=5)
    body = api.get("/workspace/activity" + window(hour - HOUR)).json()
    sums = body["window_aggregated"][row.pk]
    assert set(sums) == TOTALS | {"uptime_seconds"}
    assert (sums["total_cpu_time_ns"], sums["total_net_rx"], sums["total_disk_write"]) == (1230, 7, 95)
    assert sums["uptime_seconds"] == 90 + 2 + 19
    assert body["window_aggregated"][idle.pk] == dict.fromkeys(TOTALS | {"uptime_seconds"}, 0)
    before = api.get("/workspace/activity" + window(hour - 40 * HOUR, hour - HOUR)).json()
    assert before["window_aggregated"][row.pk]["total_cpu_time_ns"] == 50


def test_a_window_up_to_now_holds_every_second_once_also_around_a_tick(host: MeasuredHost, api: Caller) -> None:
    host.wall = time.time() // 60 * 60 - 300 + 25  # ticks in the middle of minutes
    row = host.machine()
    for second in range(150):
        host.seconds(1, row, net_rx_bytes=3)
        if second > 50 and second % 60:  # within the second after a tick the look is of before it, and left out
            sums = api.get("/workspace/activity").json()["window_aggregated"][row.pk]
            assert (sums["total_net_rx"], sums["uptime_seconds"]) == (3 * second, second)


@pytest.mark.parametrize(("entries", "truncated"), [(5, False), (6, True)])
def test_a_history_is_bounded_and_says_so(
    api: Caller, monkeypatch: pytest.MonkeyPatch, entries: int, truncated: bool
) -> None:
    monkeypatch.setattr(selectors, "HISTORY_LIMIT", 5)
    row = make_workspace(api.account)
    for _ in range(entries):
        Activity.objects.create(account=api.account, workspace_id=row.pk, action="started")
    body = api.get("/workspace/activity").json()
    assert (len(body["history"][row.pk]), body["truncated"]) == (5, truncated)


def test_the_last_day_is_returned_where_only_a_later_end_is_given(api: Caller) -> None:
    row = make_workspace(api.account)
    Activity.objects.create(account=api.account, workspace_id=row.pk, action="started")
    body = api.get("/workspace/activity?to=9999-12-31T00:00:00Z").json()
    assert [entry["event"] for entry in body["history"][row.pk]] == ["started"]


@pytest.mark.parametrize("path", ["/workspace/activity?", "/workspace/{}/usage?"])
@pytest.mark.parametrize("query", ["", "&tier=5", "&last=10w", "&last=3650d", "&all=true", "&from=0001-01-01"])
@pytest.mark.parametrize("end", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_the_ends_of_time_are_windows_like_others(api: Caller, path: str, query: str, end: str) -> None:
    answer = api.get(path.format(make_workspace(api.account).pk) + f"to={end}{query}")
    assert answer.status_code == 200, answer.content
    assert answer.json()["to"] >= "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize("query", ["from=soon", "to=never", "from=2026-01-02&to=2026-01-01"])
def test_a_wrong_window_is_refused(api: Caller, query: str) -> None:
    answer = api.get(f"/workspace/activity?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")


def test_without_tracking_nothing_grows_but_the_bill(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.seconds(30, row, cpu_time_ns=CPU)
    assert api.post(f"/workspace/{row.pk}/usage/tracking/stop").json() == {"success": True, "tracking": False}
    host.seconds(100, row, cpu_time_ns=CPU)
    assert totals(api, row)["total_cpu_time_ns"] == 30 * CPU
    assert api.get(f"/workspace/{row.pk}/stats").json()["stats"]["cpuUsage"] == 50.0
    assert api.post(f"/workspace/{row.pk}/usage/tracking/start").json() == {"success": True, "tracking": True}
    assert api.post(f"/workspace/{row.pk}/usage/tracking/start").json() == {"success": True, "tracking": True}
    host.seconds(10, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert totals(api, row)["total_cpu_time_ns"] == 40 * CPU
    assert sum(point.cpu_time_ns for point in points(row)) == 39 * CPU
    assert metered_cpu(row) == 140 * CPU
    events = list(Activity.objects.filter(workspace_id=row.pk).order_by("id").values_list("action", flat=True))
    assert events == ["tracking_stopped", "tracking_started"]


@pytest.mark.django_db(transaction=True)
def test_deleted_usage_is_gone_and_what_comes_after_counts_from_zero(host: MeasuredHost, api: Caller) -> None:
    host.wall = time.time() - 200
    row = host.machine()
    host.seconds(150, row, cpu_time_ns=CPU)  # with two ticks, and seconds that are not written yet
    for tier in (3, 4, 5):
        stored(row, tier, time.time() - TIERS[tier].resolution)
    assert api.delete(f"/workspace/{row.pk}/usage").status_code == 200
    assert totals(api, row) == dict.fromkeys(TOTALS, 0)
    assert not UsagePoint.objects.exists()
    assert all(tier["points"] == [] for tier in series(api, row, "?all=true")["tiers"])
    host.seconds(30, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert totals(api, row)["total_cpu_time_ns"] == 30 * CPU
    for tier in series(api, row, "?all=true")["tiers"]:
        assert sum(point["cpu_time_ns"] for point in tier["points"]) == 30 * CPU
    assert metered_cpu(row) == 180 * CPU


def test_a_tick_on_its_way_to_the_database_does_not_bring_deleted_usage_back(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.writer.away = True
    host.seconds(70, row, cpu_time_ns=CPU)
    api.delete(f"/workspace/{row.pk}/usage")
    host.writer.away = False
    host.seconds(60, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert cpu_total(row) == 60 * CPU
    assert sum(point.cpu_time_ns for point in points(row)) == 60 * CPU
    assert metered_cpu(row) == 130 * CPU


@pytest.mark.django_db(transaction=True)
def test_a_workspace_that_is_deleted_takes_its_usage_and_leaves_its_bill(host: MeasuredHost, api: Caller) -> None:
    row, key = host.machine(), ""
    key = row.pk
    host.seconds(70, row, cpu_time_ns=CPU)
    api.get(f"/workspace/{key}/stats")
    host.driver.delete(key)
    remove_workspace_row(row)
    host.seconds(60)
    assert not UsagePoint.objects.exists()
    assert not Usage.objects.exists()
    assert sum(record.cpu_time_ns for record in MeterRecord.objects.filter(metered__workspace_id=key)) == 70 * CPU
    # The ten seconds that were being gathered; no request returns them any more.
    assert set(redis_client().keys(redis_key(f"usage:{key}:*"))) <= {redis_key(f"usage:{key}:1").encode()}


def test_staff_see_usage_and_metering_and_change_neither(host: MeasuredHost, staff: Client) -> None:
    row = host.machine()
    host.seconds(62, row, cpu_time_ns=CPU)
    for model, found in (("usage", Usage), ("meterrecord", MeterRecord)):
        shown = staff.get(f"/admin/workspaces/{model}/?q={row.pk}")
        assert row.pk in shown.content.decode()
        key = found.objects.earliest("pk").pk
        assert staff.get(f"/admin/workspaces/{model}/{key}/change/").status_code == 200
        assert staff.post(f"/admin/workspaces/{model}/{key}/change/", {"tick": 0}).status_code == 403
        assert staff.post(f"/admin/workspaces/{model}/{key}/delete/", {"post": "yes"}).status_code == 403


def test_without_redis_the_rows_are_returned(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise redis.ConnectionError("away")

    row = make_workspace(api.account)
    Usage.objects.create(workspace=row, total_net_rx=12)
    monkeypatch.setattr(latest_samples, "redis_client", away)
    assert totals(api, row)["total_net_rx"] == 12
    assert api.get("/workspace/usage").json()["total"]["total_net_rx"] == 12
    assert api.get("/workspace/activity").status_code == 200
    assert api.delete(f"/workspace/{row.pk}/usage").status_code == 200


def test_the_words_of_the_routes_are_no_slugs(api: Caller) -> None:
    for slug in ("usage", "activity", "estimate"):
        answer: Any = api.post("/workspace", {"slug": slug, "wait_ready": False})
        assert answer.status_code == 400
