"""The list of metering records: of a workspace, a namespace or an account, by time, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.admin_columns import metered_numbers
from workspaces.models import Metered, MeterRecord

pytestmark = pytest.mark.django_db


def test_records_are_searched_by_the_kind_of_an_id(api: Caller) -> None:
    row = make_workspace(api.account)
    owner = {"namespace_id": row.namespace_id, "account_id": api.account.pk}
    number = Metered.objects.create(workspace_id=row.pk, **owner).pk
    for term in (row.pk, row.namespace_id, api.account.pk):
        assert metered_numbers(term) == [number]
    assert metered_numbers("word") == metered_numbers("ws_") == metered_numbers("host_aaaaaaaaaaaaaaaa") == []


def metered_in(account: Any, ticks: range) -> Metered:
    number = Metered.objects.count()
    metered = Metered.objects.create(workspace_id=f"ws_{number:016}", namespace_id="ns", account_id=account.pk)
    amounts = dict.fromkeys(("cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes"), 1)
    MeterRecord.objects.bulk_create(MeterRecord(metered=metered, tick=n, period_ms=1, **amounts) for n in ticks)
    return metered


@pytest.mark.parametrize("counts", [(40, 40, 40), (90, 90, 90), (170, 3, 60), (0, 1, 51)])
def test_records_of_an_account_are_shown_by_time_once_each(
    staff: Client, api: Caller, stranger: Caller, counts: tuple[int, ...]
) -> None:
    """Workspaces one after the other, of interleaved and of equal times; pages forth and back."""
    for number, count in enumerate(counts):
        metered_in(api.account, range(number // 2, number // 2 + 2 * count, 2))
    metered_in(stranger.account, range(50))
    of_account = MeterRecord.objects.filter(metered__account_id=api.account.pk)
    expected = list(of_account.order_by("-tick", "-pk").values_list("pk", flat=True))
    url, query, pages = "/admin/workspaces/meterrecord/", f"?q={api.account.pk}", []
    while query:
        with CaptureQueriesContext(connection) as captured:
            shown = staff.get(url + query).context["cl"]
        assert len(captured) < 11
        pages.append([row.pk for row in shown.result_list])
        query = shown.paginator.after
    assert [key for page in pages for key in page] == expected
    while query := shown.paginator.before:
        shown = staff.get(url + query).context["cl"]
        pages.pop()
        assert [row.pk for row in shown.result_list] == pages[-1]


def test_records_of_a_workspace_are_pages_forth_and_back(staff: Client, api: Caller) -> None:
    metered, url = metered_in(api.account, range(70)), "/admin/workspaces/meterrecord/"
    first = staff.get(url, {"q": metered.workspace_id}).context["cl"]
    second = staff.get(url + first.paginator.after).context["cl"]
    assert [row.tick for row in second.result_list] == list(reversed(range(20)))
    again = staff.get(url + second.paginator.before).context["cl"]
    assert [row.tick for row in again.result_list] == [row.tick for row in first.result_list]
