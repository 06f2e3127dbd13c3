"""The credits chart of a workspace: hours that are over are read as sums, the rest as records, each credit once."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import HOUR_NS, metered, record
from workspaces.charging import services as charging
from workspaces.models import Metered, WorkspaceHour
from workspaces.usage import charts

pytestmark = pytest.mark.django_db

MICRO = 10**6
BEGUN = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


class Time:
    now = BEGUN


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(timezone, "now", lambda: made.now)
    return made


@pytest.fixture
def owner(api: Caller) -> Metered:
    return metered(Namespace.objects.get(account=api.account))


def use(owner: Metered, moment: datetime, hours: int = 1) -> None:
    record(owner, int(moment.timestamp()) * MICRO, cpu_time_ns=hours * HOUR_NS)


def chart(clock: Time) -> list[float]:
    made = charts.compute_chart("ws_1", clock.now.timestamp())
    assert made["total"] == sum(point["creditsBurned"] for point in made["data"])
    return [point["creditsBurned"] for point in made["data"]]


def test_of_days_only_the_last_hours_are_read_as_records(clock: Time, owner: Metered) -> None:
    for _ in range(5 * 24):
        use(owner, clock.now)
        charging.charge_metered()
        clock.now += timedelta(hours=1)
    with CaptureQueriesContext(connection) as captured:
        assert chart(clock) == [24, 24, 24, 24, 24, 0]
    ticks = [
        int(number)
        for query in captured
        if "workspaces_meterrecord" in query["sql"]
        for number in re.findall(r'"tick" >= (\d+)', query["sql"])
    ]
    assert ticks
    assert min(ticks) >= int((clock.now - timedelta(hours=3)).timestamp()) * MICRO


def test_what_is_charged_late_counts_where_reports_count_it(clock: Time, owner: Metered) -> None:
    for _ in range(4):
        use(owner, clock.now)
        charging.charge_metered()
        clock.now += timedelta(hours=1)
    use(owner, clock.now - timedelta(minutes=170), hours=5)
    charging.charge_metered()
    assert chart(clock) == [1, 1, 1, 1, 5]
    clock.now += timedelta(hours=1)
    use(owner, clock.now)
    charging.charge_metered()
    assert chart(clock) == [1, 1, 1, 1, 5, 1]


def test_what_is_not_charged_yet_is_shown(clock: Time, owner: Metered) -> None:
    use(owner, clock.now)
    charging.charge_metered()
    clock.now += timedelta(hours=2)
    use(owner, clock.now - timedelta(minutes=1), hours=3)
    assert chart(clock) == [1, 0, 3]


def test_a_workspace_that_was_moved_has_one_chart(clock: Time, owner: Metered, stranger: Caller) -> None:
    use(owner, clock.now)
    charging.charge_metered()
    clock.now += timedelta(hours=3)
    use(metered(Namespace.objects.get(account=stranger.account)), clock.now, hours=2)
    charging.charge_metered()
    assert chart(clock) == [1, 0, 0, 2]


def test_a_chart_has_what_was_charged(clock: Time, owner: Metered) -> None:
    use(owner, clock.now)
    charging.charge_metered()
    WorkspaceHour.objects.update(credits=Decimal(7))
    clock.now += timedelta(hours=2)
    use(owner, clock.now)
    charging.charge_metered()
    assert chart(clock) == [7, 0, 1]
