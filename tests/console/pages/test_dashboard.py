"""The start page of the admin: its figures, where they lead, what it costs, and what a role does not see."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from html import escape, unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from certificates.models import Certificate
from console.models import HourlySummary
from console.summary import KEPT_DAYS, summary_take
from credits.models import Balance, Spending
from notifications.models import Send
from tests.cached import invalidate_cached_values
from tests.callers import Caller
from tests.console.pages.sample import make_sample, make_trend
from tests.webhooks.outbox import subscribe
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


def health_of(staff: Client) -> dict[str, tuple[int, int]]:
    """For each line of the health panel its number, and how many rows its list has."""
    panels = staff.get("/admin/").context["panels"]
    found = {}
    for label, number, _ in next(panel for panel in panels if panel.title.startswith("Webhooks")).rows:
        name, url = re.findall(r'href="([^"]+)"[^>]*>(.+)<', str(label))[0][::-1]
        count = int(re.findall(r">(\d+)<", str(number))[0])
        found[name] = (count, len(staff.get(unescape(url)).context["cl"].result_list))
    return found


def test_trouble_is_what_is_still_wanted_and_nobody_ended(staff: Client, api: Caller) -> None:
    """Rows that the owner switched off or deleted, and certificates that are being removed, are in no number."""
    now = timezone.now()
    subscribe(api.account, failing_since=now)
    subscribe(api.account, failing_since=now, active=False)
    subscribe(api.account, active=False)
    subscribe(api.account, active=False, disabled_reason="failing")
    subscribe(api.account, active=False, disabled_reason="gone", deleted_at=now)
    for number, wanted in enumerate((True, False)):
        Certificate.objects.create(name=f"{number}.example.com", wanted=wanted, next_attempt_at=now, due_at=now)
    common: dict[str, Any] = {"account_id": api.account.pk, "workspace_id": "ws_x", "token_id": 1, "last_device": 1}
    Send.objects.create(**common, devices=2, failed=1)
    Send.objects.create(**common, devices=2, state="ended", delivered=2)
    found = {name: numbers for name, numbers in health_of(staff).items() if numbers != (0, 0)}
    assert found == {
        "Webhooks failing": (1, 1),
        "Webhooks switched off by the platform": (1, 1),
        "Certificates pending": (1, 1),
        "Push sends in flight": (1, 1),
        "Push sends that failed (a day)": (1, 1),
    }


def test_the_numbers_of_hosts_and_bars_are_links(staff: Client) -> None:
    make_sample(2)
    summary_take()
    page = staff.get("/admin/")
    panels = {panel.title: panel for panel in page.context["panels"]}
    for row in panels["Hosts"].rows:
        assert [cell for cell in row[2:5] if cell != "-" and 'href="/admin/vmbackend/host/' not in cell] == []
    for bar in [*panels["Pools close to their limits"].bars, *panels["Credits by namespace, last 14 days"].bars]:
        assert page.content.decode().count(f'href="{escape(bar.url)}"') >= 2, bar.label


def test_credits_are_drawn_by_service_and_by_namespace_over_days(staff: Client, api: Caller) -> None:
    namespace, today = api.account.namespaces.get(), timezone.now().date()
    balance = Balance.objects.create(service="cdn", account_id=api.account.pk, namespace_id=namespace.pk)
    for back, amount in ((0, 3), (2, 4), (20, 9)):
        Spending.objects.create(balance=balance, day=today - timedelta(days=back), credits=Decimal(amount), requests=1)
    summary_take()
    charts = {panel.title: panel.chart for panel in staff.get("/admin/").context["panels"] if panel.chart}
    expected = [0.0] * 11 + [4.0, 0.0, 3.0]
    assert charts["Credits charged, last 14 days"].series == [("cdn", expected)]
    assert charts["Credits by namespace, last 14 days"].series == [("default", expected)]


def test_a_summary_of_the_version_before_has_no_days_of_namespaces(staff: Client, api: Caller) -> None:
    make_sample(1)
    row = summary_take()
    assert row.details is not None
    del row.details["payer_days"]
    row.save()
    panel = next(one for one in staff.get("/admin/").context["panels"] if one.title.startswith("Credits by namespace"))
    assert (len(panel.bars), panel.chart) == (1, None)


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
    money = reader("view_balance", "view_entry").get("/admin/")
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
