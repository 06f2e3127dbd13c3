"""`/namespaces/:id/usage-units`: sums by hour and day, ranges that begin and end inside of an hour, what is late."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from credits.models import Entry
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import GB_HOUR, HOUR_NS, metered, record
from tests.world import assert_error
from workspaces.charging import hours
from workspaces.charging import services as charging
from workspaces.charging.selectors import split_range, usage_units
from workspaces.models import ChargePosition, LateRecord, MeterRecord, NamespaceHour, NamespaceTick

pytestmark = pytest.mark.django_db

MICRO = 10**6
HOUR = 3600 * MICRO
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
START = int(BEGIN.timestamp()) * MICRO


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


@pytest.fixture
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are charged as soon as they are metered, whatever their tick."""
    monkeypatch.setattr(hours, "LATE", timedelta(days=3650))


def use(namespace: Namespace, hour: float, cpu_hours: int = 1, workspace: str = "ws_1") -> None:
    record(metered(namespace, workspace), START + int(hour * HOUR), cpu_time_ns=cpu_hours * HOUR_NS)


def units(api: Caller, begin: float, end: float, **query: str) -> dict[str, Any]:
    """The answer for a range, in hours after BEGIN."""
    moments = [(BEGIN + timedelta(hours=hour)).isoformat().replace("+00:00", "Z") for hour in (begin, end)]
    given = "&".join(f"{name}={value}" for name, value in query.items())
    answer = api.get(f"/namespaces/default/usage-units?from={moments[0]}&to={moments[1]}&{given}")
    assert answer.status_code == 200, answer.json()
    return answer.json()


def test_units_are_converted_and_summed(api: Caller, default: Namespace, in_time: None) -> None:
    amounts = {"memory_mb_ms": GB_HOUR, "disk_bytes": 2 * 10**9, "network_bytes": 5 * 10**8}
    record(metered(default), START, cpu_time_ns=HOUR_NS // 2, **amounts)
    charging.charge_metered()
    body = units(api, 0, 24)
    totals = {
        "cpu_time_minutes": 30,
        "memory_gb_minutes": 60,
        "disk_io_gb": 2,
        "network_gb": 0.5,
        "vcpu_hours": 0.5,
        "gb_hours": 1,
        "credits": 1.07,
        "records": 1,
    }
    assert body.pop("success") is True
    assert body.pop("data") == body
    assert body == {
        "namespace": "default",
        "range": {"from": "2026-03-01T00:00:00.000Z", "to": "2026-03-02T00:00:00.000Z"},
        "group_by": "day",
        "buckets": [{"timestamp": "2026-03-01T00:00:00.000Z", **totals}],
        "totals": totals,
    }


def test_buckets_are_hours_and_days_of_utc(api: Caller, default: Namespace, in_time: None) -> None:
    for hour in (0, 0.5, 1, 23.999, 24, 47):
        use(default, hour)
    charging.charge_metered()
    by_day = [(row["timestamp"][8:13], row["vcpu_hours"]) for row in units(api, 0, 48)["buckets"]]
    assert by_day == [("01T00", 4), ("02T00", 2)]
    by_hour = [(row["timestamp"][8:13], row["records"]) for row in units(api, 0, 48, groupBy="hour")["buckets"]]
    assert by_hour == [("01T00", 2), ("01T01", 1), ("01T23", 1), ("02T00", 1), ("02T23", 1)]


@pytest.mark.parametrize(
    ("begin", "end", "counted"),
    [(0, 3, 6), (0.5, 3, 5), (0.25, 0.75, 1), (0, 0.5, 1), (1.5, 2.5, 2), (0.6, 2.6, 4), (0.6, 2.4, 3), (2, 2, 0)],
)
def test_a_range_may_begin_and_end_inside_of_an_hour(
    api: Caller, default: Namespace, in_time: None, begin: float, end: float, counted: int
) -> None:
    for hour in (0, 0.5, 1, 1.5, 2, 2.5):
        use(default, hour)
    charging.charge_metered()
    for grouping in ("hour", "day"):
        body = units(api, begin, end, groupBy=grouping)
        assert body["totals"]["records"] == sum(row["records"] for row in body["buckets"]) == counted


@pytest.mark.parametrize("late_minutes", [None, 9])
def test_any_range_is_the_sum_of_its_records(
    api: Caller, default: Namespace, stranger: Caller, late_minutes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours, minutes and the ends inside of a minute add up, also where records count later than their tick."""
    chance = random.Random(7)
    span = 3 * HOUR
    base = START if late_minutes is None else (int(timezone.now().timestamp()) - 2 * 3600) * MICRO
    if late_minutes is None:
        monkeypatch.setattr(hours, "LATE", timedelta(days=3650))
    owners = [metered(default, "ws_1"), metered(default, "ws_2")]
    elsewhere = metered(Namespace.objects.get(account=stranger.account), "ws_1")
    for _ in range(60):
        record(chance.choice([*owners, elsewhere]), base + chance.randrange(span), cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    record(owners[0], base + HOUR, cpu_time_ns=HOUR_NS)  # not charged yet
    late = dict(LateRecord.objects.values_list("record_id", "counted_at"))
    charged = MeterRecord.objects.filter(metered__in=owners, id__lte=ChargePosition.objects.get().record_id)
    moments = [late.get(row.pk, row.tick) for row in charged]
    assert bool(late) == bool(late_minutes)
    for _ in range(40):
        begin, end = sorted(base + chance.randrange(-HOUR, span + HOUR) for _ in range(2))
        if chance.random() < 0.5:
            begin, end = begin // (60 * MICRO) * 60 * MICRO, max(chance.choice(moments), begin)
        wanted = sum(begin <= moment < end for moment in moments)
        for by_day in (True, False):
            buckets, total = usage_units(default.pk, begin, end, by_day=by_day)
            assert total.records == sum(bucket.records for bucket in buckets) == total.credits == wanted
            assert total.units.cpu_time_minutes == 60 * wanted


def test_the_ends_of_a_range_read_no_records(default: Namespace, in_time: None) -> None:
    """A row for all that was metered at one time, however many machines there are."""
    for number in range(5):
        use(default, 0.001, workspace=f"ws_{number}")
        use(default, 1.999, workspace=f"ws_{number}")
    charging.charge_metered()
    assert sorted(NamespaceTick.objects.values_list("records", flat=True)) == [5, 5]
    with CaptureQueriesContext(connection) as captured:
        _, total = usage_units(default.pk, START + 1, START + 2 * HOUR - 1, by_day=True)
    assert total.records == 10
    assert not [query["sql"] for query in captured if "meterrecord" in query["sql"]]


def test_a_range_splits_into_hours_and_ends() -> None:
    assert split_range(0, 2 * HOUR) == ((0, 7200), [])
    assert split_range(1, 2 * HOUR + 1) == ((3600, 7200), [(1, HOUR), (2 * HOUR, 2 * HOUR + 1)])
    assert split_range(1, 2) == ((0, 0), [(1, 2)])
    assert split_range(1, HOUR) == ((3600, 3600), [(1, HOUR)])


def test_what_is_not_charged_yet_is_not_shown(api: Caller, default: Namespace) -> None:
    use(default, 0.5)
    assert units(api, 0.25, 24)["totals"]["records"] == 0


def test_a_range_that_is_over_never_changes(api: Caller, default: Namespace) -> None:
    use(default, 0.5)
    shown = [units(api, *span) for span in ((0, 24), (0.25, 0.75))]
    assert charging.charge_metered() == 1
    assert [units(api, *span) for span in ((0, 24), (0.25, 0.75))] == shown, "it was charged too late for that"
    late = LateRecord.objects.get()
    age = timezone.now().timestamp() - late.counted_at / MICRO
    assert hours.LATE.total_seconds() <= age < hours.LATE.total_seconds() + 60
    recent = api.get("/namespaces/default/usage-units").json()
    assert (recent["totals"]["records"], recent["totals"]["vcpu_hours"]) == (1, 1)
    begin, end = (timezone.now() - timedelta(minutes=minutes) for minutes in (9.9, 8.9))
    window = f"from={begin:%Y-%m-%dT%H:%M:%S.%fZ}&to={end:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert api.get(f"/namespaces/default/usage-units?{window}").json()["totals"]["records"] == 1


def test_the_time_does_not_grow_with_the_records(
    api: Caller, default: Namespace, in_time: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(40):
        use(default, number / 20, workspace=f"ws_{number % 4}")
    charging.charge_metered()
    assert NamespaceHour.objects.count() == 2
    api.get("/namespaces")
    ChargePosition.objects.update(counted_from=START + 24 * HOUR)  # as where passes go on
    # The credential, the namespace, whether the range is over, its hours.
    with django_assert_num_queries(4):
        assert units(api, 0, 24)["totals"]["records"] == 40


def test_namespaces_are_apart(api: Caller, default: Namespace, stranger: Caller, in_time: None) -> None:
    use(Namespace.objects.get(account=stranger.account), 0, workspace="ws_9")
    use(default, 0)
    charging.charge_metered()
    assert Entry.objects.count() == 2
    assert units(api, 0, 1)["totals"]["records"] == 1


@pytest.mark.parametrize("query", ["from=x", "groupBy=week", "from=2026-03-02&to=2026-03-01", "from=2020-01-01"])
def test_a_bad_range_is_refused(api: Caller, query: str) -> None:
    assert_error(api.get(f"/namespaces/default/usage-units?{query}"), 400, "validation_error")
