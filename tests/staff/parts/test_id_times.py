"""Rows of a time are found by their keys, whether these are numbers or ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Account
from common.ids import first_id, new_id
from staff.parts.id_times import rows_before, rows_since
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import Activity, Metered, MeterRecord, Workspace

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def make_activity(account: Account, days: int) -> None:
    rows = [
        Activity(account=account, workspace_id="ws_x", action="e", created_at=BEGIN + day * DAY) for day in range(days)
    ]
    Activity.objects.bulk_create(rows)


def test_ids_of_a_time_are_not_before_its_first_id() -> None:
    now = datetime.now(UTC)
    assert first_id("ws", now - timedelta(seconds=1)) < new_id("ws") < first_id("ws", now + timedelta(minutes=1))
    assert len(first_id("ws", now)) == len(new_id("ws"))


@pytest.mark.parametrize("days", [-1, 0, 1, 17, 39, 40, 41])
def test_numbered_rows_are_parted_at_a_time(api: Caller, days: int) -> None:
    make_activity(api.account, 40)
    Activity.objects.filter(created_at=BEGIN + 20 * DAY).delete()  # numbers need not be complete
    at = BEGIN + days * DAY
    since, before = rows_since(Activity, "created_at", at), rows_before(Activity, "created_at", at)
    assert set(Activity.objects.filter(since)) == {row for row in Activity.objects.all() if row.created_at >= at}
    assert set(Activity.objects.filter(before)) == {row for row in Activity.objects.all() if row.created_at < at}


@pytest.mark.parametrize("days", [-1, 0, 17, 40])
def test_rows_with_microseconds_in_place_of_times_are_parted(api: Caller, days: int) -> None:
    metered = Metered.objects.create(workspace_id="ws_x", namespace_id="ns_x", account_id=api.account.pk)
    amounts = dict.fromkeys(("period_ms", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes"), 1)
    ticks = [round((BEGIN + day * DAY).timestamp()) * 10**6 for day in range(40)]
    MeterRecord.objects.bulk_create(MeterRecord(metered=metered, tick=tick, **amounts) for tick in ticks)
    at = BEGIN + days * DAY
    with CaptureQueriesContext(connection) as captured:
        since, before = rows_since(MeterRecord, "tick", at), rows_before(MeterRecord, "tick", at)
    assert len(captured) == 2
    for found, expected in ((since, ticks[max(0, days) :]), (before, ticks[: max(0, days)])):
        assert list(MeterRecord.objects.filter(found).order_by("tick").values_list("tick", flat=True)) == expected


def test_rows_whose_numbers_are_not_quite_in_the_order_of_their_times_are_found(api: Caller) -> None:
    make_activity(api.account, 10)
    late = Activity.objects.create(
        account=api.account, workspace_id="ws_x", action="late", created_at=BEGIN + 9 * DAY - timedelta(minutes=30)
    )
    assert late in Activity.objects.filter(rows_before(Activity, "created_at", BEGIN + 9 * DAY))


def test_an_empty_table_has_no_row_of_any_time() -> None:
    assert not Activity.objects.filter(rows_since(Activity, "created_at", BEGIN)).exists()
    assert not Activity.objects.filter(rows_before(Activity, "created_at", BEGIN)).exists()


def test_rows_with_ids_are_parted_without_a_query(api: Caller) -> None:
    old = make_workspace(api.account, pk=first_id("ws", BEGIN), created_at=BEGIN)
    new = make_workspace(api.account)
    with CaptureQueriesContext(connection) as captured:
        since, before = (rows(Workspace, "created_at", BEGIN + DAY) for rows in (rows_since, rows_before))
    assert len(captured) == 0
    assert (set(Workspace.objects.filter(since)), set(Workspace.objects.filter(before))) == ({new}, {old})


def test_numbers_are_halved_in_one_query_by_the_primary_key(api: Caller) -> None:
    make_activity(api.account, 40)
    with CaptureQueriesContext(connection) as captured:
        rows_since(Activity, "created_at", BEGIN + 20 * DAY)
    assert len(captured) == 1
