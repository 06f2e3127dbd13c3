"""Every list of the admin: constant queries, no count over the table, every row reached by its pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from common.ids import first_id
from common.request_origin import NO_ORIGIN
from sandboxes.models import SandboxEvent
from sandboxes.services import record_event
from tests.callers import Caller
from tests.console.pages.sample import make_account, make_sample
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.models import Host
from workspaces.models import Activity, Metered, MeterRecord, Operation
from workspaces.models.operation import OperationKind
from workspaces.network.links import link_create
from workspaces.network.services import port_publish
from workspaces.operations.queue import enqueue_operation

pytestmark = pytest.mark.django_db
# Filled by no account: what operators and migrations write.
FEW = {
    "accounts.Plan", "auth.Group", "auth.User", "cdn.PlanLimits", "certificates.AcmeAccount", "credits.Rate",
    "workspaces.CatalogEntry",
}  # fmt: skip
COUNT = re.compile(r"^SELECT COUNT\(\*\)", re.IGNORECASE)


def url_of(model: Any, view: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}", args=args)


def queries_of(client: Client, url: str) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        answer = client.get(url)
    assert answer.status_code == 200, url
    return [query["sql"] for query in captured]


def test_every_list_has_the_same_queries_for_2_and_20_rows_and_counts_nothing(staff: Client) -> None:
    make_sample(2)
    few = {model: queries_of(staff, url_of(model)) for model in admin.site._registry}
    hosts = [make_host("host-a"), make_host("host-b")]
    for number in range(2, 20):
        make_account(number, hosts[number % 2])
    many = {model: queries_of(staff, url_of(model)) for model in admin.site._registry}
    differ = {
        model._meta.label: (len(few[model]), len(many[model])) for model in few if len(few[model]) != len(many[model])
    }
    assert differ == {}
    counted = {model._meta.label: [sql for sql in queries if COUNT.match(sql)] for model, queries in many.items()}
    # Django's own lists of users and groups are short.
    assert {label for label, found in counted.items() if found} <= {"auth.User", "auth.Group"}
    filled = {model._meta.label for model in admin.site._registry if model._default_manager.count() >= 3}
    assert {model._meta.label for model in admin.site._registry} - filled - FEW == set()


def shown_rows(answer: Any) -> list[Any]:
    return [row.pk for row in answer.context["cl"].result_list]


def test_pages_by_key_show_every_row_once_in_both_directions(staff: Client, api: Caller) -> None:
    row = make_workspace(api.account)
    made = [Activity.objects.create(account=api.account, workspace_id=row.pk, action="e").pk for _ in range(120)]
    url = "/admin/workspaces/activity/"
    pages, links = [], []
    answer = staff.get(url)
    for _ in range(3):
        pages.append(shown_rows(answer))
        links.append(answer.context["cl"].paginator.after)
        answer = staff.get(url + links[-1]) if links[-1] else answer
    assert [len(page) for page in pages] == [50, 50, 20]
    assert [key for page in pages for key in page] == sorted(made, reverse=True)
    assert links[-1] == ""
    back = staff.get(url + answer.context["cl"].paginator.before)
    assert shown_rows(back) == pages[1]
    assert shown_rows(staff.get(url + back.context["cl"].paginator.before)) == pages[0]


def test_rows_that_come_in_between_neither_repeat_nor_hide_others(staff: Client, api: Caller) -> None:
    for _ in range(60):
        Activity.objects.create(account=api.account, workspace_id="ws_x", action="e")
    first = staff.get("/admin/workspaces/activity/")
    Activity.objects.create(account=api.account, workspace_id="ws_x", action="late")
    second = staff.get("/admin/workspaces/activity/" + first.context["cl"].paginator.after)
    assert set(shown_rows(first)) & set(shown_rows(second)) == set()
    assert len(shown_rows(first)) + len(shown_rows(second)) == 60


@pytest.mark.parametrize("cursor", ["x", "W10", "WzEsMl0", "////", "bnVsbA", "eyJhIjoxfQ", "W251bGxd"])
def test_a_cursor_that_is_none_shows_the_first_page(staff: Client, api: Caller, cursor: str) -> None:
    Activity.objects.create(account=api.account, workspace_id="ws_x", action="e")
    for name in ("_after", "_before"):
        answer = staff.get("/admin/workspaces/activity/", {name: cursor})
        assert (answer.status_code, len(shown_rows(answer))) == (200, 1)


def test_filters_stay_on_the_next_page(staff: Client, api: Caller) -> None:
    for number in range(130):
        Activity.objects.create(account=api.account, workspace_id=f"ws_{number % 2}", action="e")
    answer = staff.get("/admin/workspaces/activity/", {"by_workspace_id": "ws_1"})
    assert len(shown_rows(answer)) == 50
    second = staff.get("/admin/workspaces/activity/" + answer.context["cl"].paginator.after)
    assert len(shown_rows(second)) == 15


def test_numbered_pages_need_no_count(staff: Client) -> None:
    for number in range(51):
        make_host(f"host-{number:02}")
    first = staff.get("/admin/vmbackend/host/?o=1")
    assert (len(shown_rows(first)), first.context["cl"].paginator.after) == (50, "?o=1&p=2")
    second = staff.get("/admin/vmbackend/host/?o=1&p=2")
    assert shown_rows(second) == [Host.objects.get(name="host-50").pk]
    assert (second.context["cl"].paginator.before, second.context["cl"].paginator.after) == ("?o=1&p=1", "")
    assert shown_rows(staff.get("/admin/vmbackend/host/?p=99")) == []


def test_workspaces_are_found_by_id_name_slug_and_address(staff: Client, api: Caller) -> None:
    host = make_host()
    wanted = make_workspace(api.account, name="needle", slug="thread", host=host, ip="10.200.0.9")
    make_workspace(api.account, host=host, ip="10.200.0.10")
    for term in (wanted.pk, "needle", "thread", "10.200.0.9", f" {wanted.pk} "):
        assert shown_rows(staff.get("/admin/workspaces/workspace/", {"q": term})) == [wanted.pk], term
    assert len(shown_rows(staff.get("/admin/workspaces/workspace/", {"q": api.account.pk}))) == 2


def test_workspaces_are_filtered_by_state_account_host_and_age(staff: Client, api: Caller, stranger: Caller) -> None:
    host = make_host()
    mine = make_workspace(api.account, host=host, ip="10.200.0.9")
    then = datetime(2020, 1, 1, tzinfo=UTC)
    theirs = make_workspace(stranger.account, status="stopped", pk=first_id("ws", then), created_at=then)
    for filters, found in (
        ({"status__exact": "running"}, mine),
        ({"by_account": stranger.account.pk}, theirs),
        ({"by_host": host.pk}, mine),
        ({"age_created_at": "hour"}, mine),
        ({"age_created_at": "older"}, theirs),
    ):
        assert shown_rows(staff.get("/admin/workspaces/workspace/", filters)) == [found.pk], filters


@pytest.mark.parametrize(
    ("label", "column"),
    [
        ("workspaces/operation", "account_id"),
        ("workspaces/publicport", "account_id"),
        ("workspaces/portlink", "account_id"),
        ("sandboxes/sandboxevent", "account"),
    ],
)
def test_rows_of_an_account_are_filtered_and_searched(
    staff: Client, api: Caller, stranger: Caller, label: str, column: str
) -> None:
    rows = [(caller, [row_of(caller, label) for _ in range(2)]) for caller in (api, stranger)]
    for caller, found in rows:
        for query in ({f"by_{column}": caller.account.pk}, {"q": caller.account.pk}):
            shown = shown_rows(staff.get(f"/admin/{label}/", query))
            assert shown == [row.pk for row in found[::-1]], query


def row_of(caller: Caller, label: str) -> Any:
    """As services make it."""
    box = make_workspace(caller.account, host=make_host(), kind="sandbox")
    if label == "workspaces/operation":
        return enqueue_operation(box, OperationKind.START, actor="test")
    if label == "workspaces/publicport":
        return port_publish(workspace=box, actor="test", port=8080).port
    if label == "workspaces/portlink":
        port_publish(workspace=box, actor="test", port=8080, access="private")
        return link_create(workspace=box, actor="test", port=8080, ttl_seconds=60)
    record_event(box, "created", actor="test", origin=NO_ORIGIN)
    return SandboxEvent.objects.latest("pk")


def test_metering_records_are_filtered_by_age(staff: Client, api: Caller) -> None:
    now = round(timezone.now().timestamp() * 10**6)
    metered = Metered.objects.create(workspace_id="ws_x", namespace_id="ns_x", account_id=api.account.pk)
    amounts = dict.fromkeys(("period_ms", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes"), 1)
    old, new = (
        MeterRecord.objects.create(metered=metered, tick=now - days * 24 * 3600 * 10**6, **amounts).pk
        for days in (40, 0)
    )
    for age, found in (("hour", [new]), ("month", [new]), ("older", [old]), ("", [new, old])):
        assert shown_rows(staff.get("/admin/workspaces/meterrecord/", {"age_tick": age})) == found, age


def test_times_are_relative_with_the_exact_one_on_hover(staff: Client, api: Caller) -> None:
    row = make_workspace(api.account)
    text = staff.get("/admin/workspaces/workspace/").content.decode()
    assert f'title="{row.created_at:%Y-%m-%d %H:%M:%S} UTC"' in text
    assert re.search(r">\d+ s ago</time>", text)


def test_the_links_of_the_dashboard_to_operations_find_them(staff: Client) -> None:
    make_sample(2)
    found = {
        name: staff.get("/admin/workspaces/operation/", {"attention": name}) for name in ("live", "failed", "slow")
    }
    states = {name: {Operation.objects.get(pk=pk).state for pk in shown_rows(page)} for name, page in found.items()}
    assert states == {"live": {"running"}, "failed": {"failed"}, "slow": set()}


def test_an_account_is_no_dropdown_of_all_accounts(staff: Client) -> None:
    make_sample(3)
    text = staff.get("/admin/workspaces/workspace/").content.decode()
    assert 'name="by_account"' in text
    assert not [account for account in Account.objects.all() if f'value="{account.pk}"' in text]
