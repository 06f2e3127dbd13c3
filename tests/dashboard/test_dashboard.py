"""The start page of the admin: its figures, where they lead, what it costs, and what a role does not see."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from credits.models import Balance
from dashboard.models import HourlySummary
from dashboard.summary import KEPT_DAYS, summary_take
from tests.cached import invalidate_cached_values
from tests.callers import Caller
from tests.dashboard.sample import make_sample, make_trend
from tests.workspaces.rows import make_workspace
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationState
from workspaces.operations.queue import claim_operation, enqueue_operation, finish_operation, new_claim

pytestmark = pytest.mark.django_db
MOST_QUERIES = 12


def reader(*permissions: str) -> Client:
    """A member of staff with these permissions, such as `view_host`."""
    user = get_user_model().objects.create_user(f"reader{len(permissions)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def titles(page: Any) -> list[str]:
    return [panel.title for panel in page.context["panels"]]


def tiles(page: Any) -> dict[str, int]:
    return {tile.label: tile.number for tile in page.context["tiles"]}


def test_the_start_page_counts_workspaces_by_state_and_operations(staff: Client, api: Caller) -> None:
    for status in ("running", "running", "sleeping", "failed"):
        make_workspace(api.account, status=status)
    shown = tiles(staff.get("/admin/"))
    assert (shown["workspaces"], shown["running"], shown["sleeping"], shown["failed"], shown["lost"]) == (4, 2, 1, 1, 0)
    assert (shown["operations in flight"], shown["failed in a day"], shown["slow in a day"]) == (0, 0, 0)


def test_every_number_leads_to_as_many_rows(staff: Client) -> None:
    make_sample(8)
    page = staff.get("/admin/")
    for tile in page.context["tiles"]:
        assert len(staff.get(tile.url).context["cl"].result_list) == tile.number, tile.label
    health = next(panel for panel in page.context["panels"] if panel.title.startswith("Webhooks"))
    for label, number, _ in health.rows:
        url, count = re.search(r'href="([^"]+)"', str(label)), re.search(r">(\d+)<", str(number))
        assert url is not None
        assert count is not None
        listed = staff.get(unescape(url[1])).context["cl"].result_list
        assert len(listed) == int(count[1]), label


def test_every_link_of_the_start_page_leads_somewhere(staff: Client) -> None:
    make_sample(1)
    summary_take()
    links = set(re.findall(r'href="(/admin/[^"]+)"', staff.get("/admin/").content.decode()))
    assert len(links) > 40
    assert {
        link: staff.get(unescape(link)).status_code for link in links if "logout" not in link and "password" not in link
    }
    assert [link for link in links if staff.get(unescape(link)).status_code not in (200, 302)] == []


@pytest.mark.parametrize("accounts", [0, 12])
def test_the_start_page_takes_at_most_twelve_queries(staff: Client, accounts: int) -> None:
    make_sample(accounts)
    make_trend()
    summary_take()
    everything = [permission.codename for permission in Permission.objects.all()]
    for client in (staff, reader(*everything)):
        invalidate_cached_values()
        with CaptureQueriesContext(connection) as captured:
            assert client.get("/admin/").status_code == 200
        assert len(captured) <= MOST_QUERIES, "\n".join(query["sql"][:90] for query in captured)


def test_a_role_sees_what_it_may_view_and_nothing_else(db: None) -> None:
    make_sample(2)
    summary_take()
    hosts = reader("view_host").get("/admin/")
    assert (titles(hosts), tiles(hosts)) == (["Hosts"], {})
    money = reader("view_balance", "view_waitingcharge").get("/admin/")
    assert not tiles(money)
    assert "Hosts" not in titles(money)
    assert "Acme" not in hosts.content.decode()
    nothing = reader().get("/admin/")
    assert (titles(nothing), tiles(nothing)) == ([], {})
    assert "no part of the dashboard" in nothing.content.decode()


def test_the_trend_has_an_hour_for_each_summary(staff: Client, api: Caller) -> None:
    make_workspace(api.account)
    make_trend(days=2)
    summary_take()
    chart = next(panel for panel in staff.get("/admin/").context["panels"] if "seven days" in panel.title).chart
    assert dict(chart.series)["running"][-1] == 1
    assert len(chart.labels) == 48


def test_a_summary_is_of_its_hour_and_old_ones_go(api: Caller) -> None:
    make_workspace(api.account)
    now = timezone.now().replace(minute=10)
    old = now - timedelta(days=KEPT_DAYS, hours=1)
    for at in (old, now - timedelta(hours=1), now, now + timedelta(minutes=5)):
        summary_take(at)
    rows = list(HourlySummary.objects.all())
    assert [row.hour for row in rows] == [
        now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=back) for back in (0, 1)
    ]
    assert rows[0].taken_at == now + timedelta(minutes=5)
    assert rows[0].details is not None
    assert rows[1].details is None


def test_pools_that_are_nearly_full_are_shown_with_the_fullest_first(api: Caller, stranger: Caller) -> None:
    namespace = api.account.namespaces.get()
    limits = {"quota_limit": Decimal(100), "account_id": api.account.pk, "namespace_id": namespace.pk}
    Balance.objects.create(service="sandbox", used=Decimal(79), **limits)
    Balance.objects.create(service="cdn", used=Decimal(70), held=Decimal(15), **limits)
    make_workspace(stranger.account, memory_mb=stranger.account.plan.pool_memory_mb)
    found = [(pool["what"], pool["share"]) for pool in summary_take().details["pools"]]  # type: ignore[index]
    assert found == [("memory (GiB)", 1.0), ("credits for CDN", 0.85)]


def test_an_operation_that_failed_or_was_slow_wants_attention(api: Caller) -> None:
    found = {}
    for name, state, age in (("failed", "failed", 0), ("slow", "succeeded", 1), ("quick", "succeeded", 0)):
        row = make_workspace(api.account)
        made = enqueue_operation(row, "start", actor="t")  # type: ignore[arg-type]
        length = made.deadline_at - made.created_at
        Operation.objects.filter(pk=made.pk).update(created_at=made.created_at - age * length)
        claimed = claim_operation(made.pk, new_claim())
        assert claimed is not None
        finish_operation(claimed, OperationState(state), code="x" if state == "failed" else "", message="It did not.")
        found[name] = Operation.objects.get(pk=made.pk).attention_at is not None
    assert found == {"failed": True, "slow": True, "quick": False}
    assert Workspace.objects.count() == 3


def test_the_sentence_of_a_failure_is_shown(staff: Client) -> None:
    make_sample(1)
    assert "its guest agent did not answer within 60 seconds" in staff.get("/admin/").content.decode()
