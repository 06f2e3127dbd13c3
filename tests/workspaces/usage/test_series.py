"""The time series: tiers, windows, and what fills a bucket that is not over yet."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from common.redis import redis_client
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.measured import CPU, MIB, MeasuredHost
from workspaces.models import Usage, UsagePoint, Workspace
from workspaces.usage import latest_samples
from workspaces.usage.amounts import SUMS
from workspaces.usage.latest_samples import SampledMachine
from workspaces.usage.selectors import Series
from workspaces.usage.tiers import DAY, HOUR, MINUTE, TIERS, tier_reaching

pytestmark = pytest.mark.django_db

POINT = {
    "timestamp", "cpu_time_ns", "cpu_percent", "memory_bytes", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes",
    "net_tx_bytes",
}  # fmt: skip


def stored(row: Workspace, tier: int, start: float, **sums: int) -> None:
    """A point as a tick or the compaction would have written it: half of one CPU, 100 MiB."""
    usage, _ = Usage.objects.get_or_create(workspace=row)
    seconds = TIERS[tier].resolution
    made = {
        **dict.fromkeys(SUMS, 0),
        "observed_ms": seconds * 1000,
        "cpu_time_ns": seconds * CPU // 2,
        "cpu_capacity_ns": seconds * CPU,
        "memory_kib_ms": 100 * 1024 * seconds * 1000,
        **sums,
    }
    UsagePoint.objects.create(usage=usage, tier=tier, start=TIERS[tier].floor(start), **made)


def series(api: Caller, row: Workspace, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/workspace/{row.pk}/usage{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_every_tier_shows_what_is_being_measured_now(host: MeasuredHost, api: Caller) -> None:
    host.wall = time.time() - 100
    row = host.machine()
    host.seconds(100, row, cpu_time_ns=CPU // 2, net_rx_bytes=1000)
    body = series(api, row, "?all=true")
    assert [tier["tier"] for tier in body["tiers"]] == [0, 1, 2, 3, 4, 5]
    assert [tier["resolution_seconds"] for tier in body["tiers"]] == [1, 10, 60, 600, 3600, 86400]
    for tier in body["tiers"]:
        assert sum(point["cpu_time_ns"] for point in tier["points"]) == 99 * CPU // 2
        assert sum(point["net_rx_bytes"] for point in tier["points"]) == 99_000
        assert all(set(point) == POINT for point in tier["points"])
        assert all(point["cpu_percent"] == 25.0 for point in tier["points"])
        assert all(point["memory_bytes"] == 256 * MIB for point in tier["points"])
    assert len(body["tiers"][0]["points"]) == 99
    assert 10 <= len(body["tiers"][1]["points"]) <= 11


def test_a_series_has_its_documented_fields(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    body = series(api, row)
    assert {"success", "workspace_id", "from", "to", "tier", "resolution_seconds", "points"} <= set(body)
    assert (body["workspace_id"], body["tier"], body["resolution_seconds"], body["points"]) == (row.pk, 2, 60, [])
    assert series(api, row, "?all=false&tier=4")["resolution_seconds"] == 3600


@pytest.mark.parametrize(
    ("last", "tier"),
    [("90s", 0), ("2m", 0), ("10m", 1), ("1h", 2), ("7200", 3), ("6h", 3), ("3d", 4), ("4d", 5), ("52w", 5)],
)
def test_the_tier_is_chosen_by_how_far_back_the_window_reaches(api: Caller, last: str, tier: int) -> None:
    row = make_workspace(api.account)
    assert series(api, row, f"?last={last}")["tier"] == tier
    begin = datetime.now(UTC) - timedelta(seconds=TIERS[tier].window / 2)
    assert series(api, row, f"?from={begin:%Y-%m-%dT%H:%M:%S}Z")["tier"] == tier


def test_a_window_holds_the_buckets_that_reach_into_it(api: Caller) -> None:
    row = make_workspace(api.account)
    now = time.time()
    starts = [TIERS[2].floor(now) - n * MINUTE for n in range(2, 30)]
    for start in starts:
        stored(row, 2, start)
    begin, end = datetime.fromtimestamp(starts[10] + 30, UTC), datetime.fromtimestamp(starts[5] + 30, UTC)
    body = series(api, row, f"?tier=2&from={begin.isoformat()}&to={end.isoformat()}")
    shown = [datetime.fromisoformat(point["timestamp"]).timestamp() for point in body["points"]]
    assert shown == sorted(starts[5:11])
    assert body["points"][0]["cpu_percent"] == 50.0
    assert body["points"][0]["memory_bytes"] == 100 * MIB


def test_buckets_that_are_not_rolled_up_yet_are_made_from_finer_ones(api: Caller) -> None:
    row = make_workspace(api.account)
    hour = TIERS[4].floor(time.time())
    stored(row, 4, hour - 2 * HOUR, cpu_time_ns=1)
    stored(row, 3, hour - 2 * HOUR, cpu_time_ns=1000)  # in the bucket already
    stored(row, 3, hour - HOUR, cpu_time_ns=2)
    stored(row, 3, hour - HOUR + 600, cpu_time_ns=3)
    stored(row, 2, hour - HOUR + 600, cpu_time_ns=1000)  # in the bucket already
    stored(row, 2, hour - HOUR + 1200, cpu_time_ns=4)
    series = Series(row, hour + 1)
    assert [point.cpu_time_ns for point in series.points(4, hour - DAY, hour)] == [1, 9]
    (day,) = series.points(5, hour - HOUR, hour)
    assert day.start % DAY == 0


def test_a_gap_has_no_points(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.wall = time.time() - 110
    host.seconds(30, row, cpu_time_ns=CPU)
    host.pass_by(40)
    host.seconds(30, row, cpu_time_ns=CPU)
    shown = [datetime.fromisoformat(p["timestamp"]).timestamp() for p in series(api, row, "?tier=0")["points"]]
    assert len(shown) == 29 + 29
    assert max(after - before for before, after in itertools.pairwise(shown)) == 42


@pytest.mark.parametrize(
    "query",
    [
        "tier=6", "tier=-1", "tier=x", "last=soon", "last=0", "last=11y", "from=yesterday", "to=1", "all=perhaps",
        "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from=2999-01-01T00:00:00Z", "from=%00",
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused_by_the_name_of_its_field(api: Caller, query: str) -> None:
    row = make_workspace(api.account)
    answer = api.get(f"/workspace/{row.pk}/usage?{query}")
    assert answer.status_code == 400
    body = answer.json()
    assert body["code"] == "validation_error"
    assert set(body["details"]) <= set(query.replace("&", "=").split("="))


def test_times_are_taken_with_and_without_a_zone(api: Caller) -> None:
    row = make_workspace(api.account)
    for zone in ("Z", "", "-00:00", "+00:00", "%2B00:00"):
        sent = f"2026-01-01T10:00:00{zone}"
        assert series(api, row, f"?from={sent}")["from"] == "2026-01-01T10:00:00.000Z"


def test_without_redis_the_stored_tiers_are_shown(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise redis.ConnectionError("away")

    row = make_workspace(api.account)
    stored(row, 2, time.time() - 120)
    monkeypatch.setattr(latest_samples, "redis_client", away)
    assert len(series(api, row, "?tier=2")["points"]) == 1
    assert series(api, row, "?tier=0")["points"] == []


def test_a_series_takes_few_queries_however_much_it_shows(api: Caller, django_assert_max_num_queries: Any) -> None:
    row = make_workspace(api.account)
    for number in (2, 3, 4, 5):
        for step in range(1, 50):
            stored(row, number, time.time() - step * TIERS[number].resolution)
    series(api, row)  # the first call of a credential notes that it was used
    with django_assert_max_num_queries(7):
        series(api, row, "?all=true")


def test_the_tiers_are_those_of_the_specification() -> None:
    assert [(tier.resolution, tier.window) for tier in TIERS] == [
        (1, 120), (10, 900), (60, 3600), (600, 6 * HOUR), (HOUR, 3 * DAY), (DAY, 90 * DAY),
    ]  # fmt: skip
    assert tier_reaching(1000 * DAY) is TIERS[5]


def test_redis_keeps_a_bounded_piece_of_each_workspace_and_no_more(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(400, row, cpu_time_ns=CPU)
    client = redis_client()
    for what, entries, seconds in (("0", 150, 150), ("1", 100, 1000)):
        key = f"{SampledMachine(row.host_id, row.pk).key}:{what}"
        assert client.llen(key) <= entries
        assert 0 < client.ttl(key) <= seconds
    assert 0 < client.ttl(f"{SampledMachine(row.host_id, row.pk).key}:now") <= 15
