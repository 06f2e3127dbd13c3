"""Rolling up and letting go."""

from __future__ import annotations

import time

import pytest

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.measured import CPU, MeasuredHost, dying_after, points
from tests.workspaces.usage.test_series import stored
from vmbackend.samples import Sample
from workspaces.host.metering.compaction import LATE_SECONDS, compact_usage
from workspaces.host.metering.meter import MeterTarget, UsageDelta
from workspaces.host.metering.writer import write_deltas
from workspaces.models import UsagePoint, Workspace
from workspaces.usage.amounts import SUMS, Amounts, Point
from workspaces.usage.tiers import DAY, HOUR, TIERS

pytestmark = pytest.mark.django_db

NOON = 1_800_000_000 // DAY * DAY + 12 * HOUR
LATER = NOON + HOUR + LATE_SECONDS


def minutes(row: Workspace, since: int, count: int) -> None:
    for number in range(count):
        stored(row, 2, since + 60 * number, cpu_time_ns=1 << number % 30, net_rx_bytes=1)


def everything() -> list[tuple]:
    return list(UsagePoint.objects.order_by("tier", "start", "usage").values_list("usage", "tier", "start", *SUMS))


def test_a_bucket_is_the_sum_of_the_finer_ones(api: Caller) -> None:
    one, other = make_workspace(api.account), make_workspace(api.account)
    minutes(one, NOON, 60)
    minutes(other, NOON + 600, 10)
    compact_usage(LATER)
    assert [point.start for point in points(one, 3)] == [NOON + 600 * n for n in range(6)]
    assert points(one, 3)[0].cpu_time_ns == (1 << 10) - 1
    assert points(one, 3)[0].observed_ms == 600_000
    assert [point.start for point in points(other, 3)] == [NOON + 600]
    (hour,) = points(one, 4)
    assert (hour.start, hour.net_rx_bytes, hour.observed_ms) == (NOON, 60, 3_600_000)
    assert points(one, 5) == []


def test_a_sum_that_no_column_holds_keeps_no_other_machine_from_being_compacted(api: Caller) -> None:
    one, other = make_workspace(api.account), make_workspace(api.account)
    for number in range(3):
        stored(one, 2, NOON + 60 * number, net_rx_bytes=2**62, net_tx_bytes=5)
    minutes(other, NOON, 60)
    compact_usage(LATER)
    assert points(other, 4)[0].net_rx_bytes == 60
    (hour,) = points(one, 4)
    assert 2**58 < hour.net_rx_bytes < 2**63
    assert hour.net_tx_bytes == 15


def test_buckets_that_are_not_over_wait(api: Caller) -> None:
    row = make_workspace(api.account)
    minutes(row, NOON, 15)
    compact_usage(NOON + 600 + LATE_SECONDS - 1)
    assert points(row, 3) == []
    compact_usage(NOON + 600 + LATE_SECONDS)
    assert [point.start for point in points(row, 3)] == [NOON]


def test_compacting_again_changes_nothing(api: Caller) -> None:
    row = make_workspace(api.account)
    minutes(row, NOON, 60)
    compact_usage(LATER)
    before = everything()
    for _ in range(3):
        compact_usage(LATER)
    assert everything() == before


def test_what_comes_late_is_still_taken_into_the_newest_bucket(api: Caller) -> None:
    row = make_workspace(api.account)
    minutes(row, NOON, 5)
    compact_usage(NOON + 600 + LATE_SECONDS)
    stored(row, 2, NOON + 540, net_rx_bytes=1000)
    compact_usage(NOON + 660 + LATE_SECONDS)
    assert points(row, 3)[0].net_rx_bytes == 1005


@pytest.mark.parametrize("hours", [1, 4])
def test_what_a_host_writes_too_late_for_a_bucket_is_in_it_all_the_same(api: Caller, hours: int) -> None:
    """As after a time in which one host's vmhost did not reach the database."""
    row, other = make_workspace(api.account), make_workspace(api.account)
    noon = int(time.time()) // DAY * DAY - 2 * DAY + 12 * HOUR
    minutes(other, noon, 59)
    compact_usage(noon + HOUR + LATE_SECONDS)
    minutes(other, noon + hours * HOUR, 59)
    compact_usage(noon + hours * HOUR + HOUR + LATE_SECONDS)
    late = [Point(noon + 60 * number, 60_000, net_rx_bytes=1) for number in range(50)]
    entry = MeterTarget(row.pk, row.account_id, row.namespace_id, 1000, 128, True, 0)
    part = UsageDelta(entry, Sample(1, "r"), Amounts(), Amounts(), 0, 0, late, 0)
    for _ in range(2):
        write_deltas({row.pk: part}, 7)
    for again in range(3):
        compact_usage(noon + hours * HOUR + HOUR + LATE_SECONDS + 300 * again)
    assert [point.net_rx_bytes for point in points(row, 3)] == [10] * 5
    assert [point.net_rx_bytes for point in points(row, 4)] == [50]
    compact_usage(noon + (hours + 48) * HOUR)
    assert sum(point.net_rx_bytes for point in points(row, 5)) == 50


def test_each_tier_is_kept_as_long_as_it_reaches(api: Caller) -> None:
    row = make_workspace(api.account)
    minutes(row, NOON, 180)
    now = NOON
    while now < NOON + 12 * HOUR:
        now += 300
        compact_usage(now)
        for number in (2, 3):
            remaining = points(row, number)
            oldest = TIERS[number].floor(now - TIERS[number].window)
            slack = TIERS[number + 1].resolution + LATE_SECONDS
            assert all(point.start >= oldest - slack for point in remaining), (number, now)
    assert [point.net_rx_bytes for point in points(row, 4)] == [60, 60, 60]
    compact_usage(NOON + 2 * DAY)
    assert [point.net_rx_bytes for point in points(row, 5)] == [180]
    compact_usage(NOON + 10 * DAY)
    assert [len(points(row, number)) for number in (2, 3, 4, 5)] == [0, 0, 0, 1]
    compact_usage(NOON + 100 * DAY)
    assert everything() == []


def test_nothing_goes_before_a_coarser_bucket_holds_it(api: Caller) -> None:
    """A worker that was away for days finds everything, and rolls it up before it lets it go."""
    row = make_workspace(api.account)
    minutes(row, NOON, 180)
    for _ in range(5):
        compact_usage(NOON + 2 * DAY)
    assert [point.net_rx_bytes for point in points(row, 5)] == [180]
    assert points(row, 2) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", range(0, 40, 3))
def test_a_compaction_that_dies_is_made_good_by_the_next(api: Caller, statement: int) -> None:
    rows = [make_workspace(api.account) for _ in range(2)]
    for row in rows:
        minutes(row, NOON, 60)
    with dying_after(statement):
        compact_usage(NOON + 3 * HOUR)
    for hours in (3, 4, 40):
        compact_usage(NOON + hours * HOUR)
    for row in rows:
        assert [point.net_rx_bytes for point in points(row, 4)] == [60]
        assert [point.net_rx_bytes for point in points(row, 5)] == [60]


def test_points_that_a_clock_ahead_of_time_left_stop_nothing(api: Caller) -> None:
    row = make_workspace(api.account)
    for tier in (2, 3, 4, 5):
        stored(row, tier, NOON + 400 * DAY)
    minutes(row, NOON, 60)
    compact_usage(LATER)
    assert next(point.net_rx_bytes for point in points(row, 4)) == 60
    assert len(points(row, 3)) == 6 + 1


def test_many_workspaces_are_taken_in_small_batches(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from workspaces.host.metering import compaction

    monkeypatch.setattr(compaction, "BATCH", 3)
    rows = [make_workspace(api.account) for _ in range(10)]
    for row in rows:
        minutes(row, NOON, 10)
    assert compact_usage(NOON + 600 + LATE_SECONDS) == 10
    assert all(len(points(row, 3)) == 1 for row in rows)


def test_ticks_and_compaction_together_lose_nothing(host: MeasuredHost) -> None:
    row = host.machine()
    host.wall = float(NOON)
    for _ in range(50):
        host.seconds(30, row, cpu_time_ns=CPU)
        host.compact()
    host.sampler.flush(everything=True)
    host.wall += DAY + LATE_SECONDS
    host.compact()
    assert sum(point.cpu_time_ns for point in points(row, 4)) == 1499 * CPU
    assert sum(point.cpu_time_ns for point in points(row, 5)) == 1499 * CPU
