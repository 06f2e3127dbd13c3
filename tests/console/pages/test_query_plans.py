"""What the admin looks for in large tables goes by an index, and each condition of a search by its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from assist.models import DayCount
from common.prefix_keys import begins_with
from credits.admin_columns import ServiceFilter
from credits.models import Balance, Entry, EntryKind
from namespaces.models import Namespace
from notifications.models import Send
from staff.parts import first_rows
from staff.parts.id_times import rows_before, rows_since
from tests.callers import Caller
from tests.cdn.rows import make_file
from tests.workspaces.rows import make_workspace
from workspaces.models import Activity, Metered, Workspace
from workspaces.quota import account_usage

pytestmark = pytest.mark.django_db
MANY = 3000
LISTS: dict[str, tuple[str, Callable[[], QuerySet[Any]]]] = {
    "an event": ("activity_by_action", lambda: Activity.objects.filter(action="rare").order_by("-id")),
    "an actor": ("activity_by_actor", lambda: Activity.objects.filter(actor="rare").order_by("-id")),
    "a workspace": ("activity_of_workspace", lambda: Activity.objects.filter(workspace_id="rare").order_by("-id")),
    "an owner": ("metered_of_account", lambda: Metered.objects.filter(account_id="rare")),
    "refunds": ("entries_but_charges", lambda: Entry.objects.filter(kind="refund").order_by("-id")),
    "sends in flight": ("_state", lambda: Send.objects.filter(state__in=["queued"]).order_by("-id")),
    "sends that failed": (
        "send_failed", lambda: Send.objects.filter(failed__gt=0).order_by("-id").only("created_at"),
    ),
}  # fmt: skip


def make_many(account: Any) -> None:
    row = {"account": account, "workspace_id": "ws_x", "action": "e", "actor": "a", "detail": "d" * 40}
    Activity.objects.bulk_create(Activity(**row) for _ in range(MANY))
    Metered.objects.bulk_create(
        Metered(workspace_id=f"ws_{n}", namespace_id="ns", account_id=f"acc_{n % 500}") for n in range(MANY)
    )
    sent = {"account_id": account.pk, "workspace_id": "ws_x", "token_id": 1, "last_device": 1, "devices": 1}
    Send.objects.bulk_create(
        Send(**sent, state="running" if number else "queued", failed=0 if number else 1) for number in range(MANY)
    )
    balance = balance_of(account, "cdn")
    Entry.objects.bulk_create(Entry(balance=balance, kind="charge", amount=1, balance_after=1) for _ in range(MANY))
    analyze("workspaces_activity", "workspaces_metered", "notifications_send", "credits_entry")


def copy_often(workspace: Workspace) -> None:
    """Make so many like it that a plan which reads all of them is the dearer one."""
    values = {field.attname: getattr(workspace, field.attname) for field in Workspace._meta.concrete_fields}
    copies = []
    for number in range(MANY):
        copies.append(Workspace(**{**values, "id": f"ws_{number:016}", "name": f"b {number}", "slug": f"b-{number}"}))
    Workspace.objects.bulk_create(copies, batch_size=100)
    analyze("workspaces_workspace")


def analyze(*tables: str) -> None:
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ANALYZE {table}")


def explain(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(line for (line,) in cursor.fetchall())


@pytest.mark.parametrize("name", LISTS)
def test_rare_rows_are_found_by_an_index(api: Caller, name: str) -> None:
    make_many(api.account)
    index, rows = LISTS[name]
    plan = rows()[:51].explain()
    assert index in plan, plan


@pytest.mark.parametrize("column", ["name", "slug"])
def test_beginnings_are_found_by_an_index_in_any_case(api: Caller, column: str) -> None:
    wanted = make_workspace(api.account, name="Needle one", slug="needle-one")
    copy_often(make_workspace(api.account))
    rows = Workspace.objects.filter(begins_with(column, "nEEDLE")).order_by("-id")
    assert list(rows) == [wanted]
    plan = rows.values_list("pk")[:51].explain()
    assert f"workspace_{column}_begins" in plan, plan


@pytest.mark.parametrize("typed", ["Straße", "straße 1", "STRAßE"])
def test_what_another_case_would_lengthen_is_found_as_it_was_typed(api: Caller, typed: str) -> None:
    wanted = make_workspace(api.account, name="Straße 12")
    make_workspace(api.account, name="Strauss")
    assert list(Workspace.objects.filter(begins_with("name", typed))) == [wanted]


@pytest.mark.parametrize("rows", [rows_since, rows_before])
def test_rows_of_an_age_are_found_by_an_index(api: Caller, rows: Callable[..., Any]) -> None:
    make_many(api.account)
    plan = Activity.objects.filter(rows(Activity, "created_at", timezone.now() - timedelta(days=2))).order_by("-id")[
        :51
    ]
    text = plan.explain()
    assert "Seq Scan" not in text, text


def test_a_search_is_no_condition_with_or(staff: Client, api: Caller) -> None:
    box = make_workspace(api.account)
    Activity.objects.create(account=api.account, workspace_id=box.pk, action="made", actor="somebody")
    for term in (box.pk, api.account.pk, "made", "somebody", "nothing"):
        with CaptureQueriesContext(connection) as captured:
            answer = staff.get("/admin/workspaces/activity/", {"q": term})
        assert len(answer.context["cl"].result_list) == (0 if term == "nothing" else 1), term
        searches = [query["sql"] for query in captured if 'FROM "workspaces_activity"' in query["sql"]]
        assert [sql for sql in searches if " OR " in sql] == []


def test_the_pages_of_a_search_show_every_row_once(staff: Client, api: Caller) -> None:
    for number in range(120):
        words = {"action": "wake" if number % 2 else "other", "actor": "wake" if number % 3 else "else"}
        Activity.objects.create(account=api.account, workspace_id="ws_x", **words)
    expected = [row.pk for row in Activity.objects.order_by("-id") if "wake" in (row.action, row.actor)]
    url, found = "/admin/workspaces/activity/", []
    answer = staff.get(url, {"q": "wake"})
    for _ in range(3):
        found += [row.pk for row in answer.context["cl"].result_list]
        after = answer.context["cl"].paginator.after
        if not after:
            break
        answer = staff.get(url + after)
    assert found == expected


@pytest.mark.parametrize("path", ["/workspace", "/workspace?search=ws_aaaaaaaaaaaaaaaa", "/sandbox"])
def test_the_list_of_an_account_reads_no_other_accounts_rows(api: Caller, stranger: Caller, path: str) -> None:
    make_workspace(api.account)
    copy_often(make_workspace(stranger.account))
    with CaptureQueriesContext(connection) as captured:
        assert api.get(path).status_code == 200
    reads = [query["sql"] for query in captured if '"workspaces_workspace"' in query["sql"]]
    assert len(reads) >= 2  # the rows, and their number
    for sql in reads:
        plan = explain(sql)
        assert re.search(r"Index Cond: \(+account_id\)?", plan), plan


@pytest.mark.django_db(transaction=True)
def test_what_an_account_uses_is_read_from_an_index_alone(api: Caller) -> None:
    copy_often(make_workspace(api.account))
    with CaptureQueriesContext(connection) as captured:
        account_usage(api.account)
    query = next(each for each in captured if "workspaces_workspace" in each["sql"])
    with connection.cursor() as cursor:
        # A commit is known as one once it is flushed, which the tests' server does later unless it is asked.
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("CREATE TEMPORARY TABLE flushed () ON COMMIT DROP")
        cursor.execute("VACUUM (ANALYZE) workspaces_workspace")  # its pages are known to be visible to all
        cursor.execute("RESET synchronous_commit")
    plan = explain(query["sql"])
    assert "Index Only Scan using workspace_pools" in plan, plan


def test_entries_are_found_by_each_kind(staff: Client, api: Caller) -> None:
    balance = Balance.objects.create(
        account_id=api.account.pk, namespace_id=Namespace.objects.get(account=api.account).pk, service="sandbox"
    )
    for kind in EntryKind.values:
        Entry.objects.create(balance=balance, kind=kind, amount=1, balance_after=1)
    for query, found in [("", EntryKind.values), *((f"?kind__exact={kind}", [kind]) for kind in EntryKind.values)]:
        shown = staff.get(f"/admin/credits/entry/{query}").context["cl"].result_list
        assert sorted(row.kind for row in shown) == sorted(found), query


def test_day_counts_are_pages_by_day(staff: Client, api: Caller, stranger: Caller) -> None:
    first = date(2026, 1, 1)
    days = [first + timedelta(days=number) for number in range(40)]
    DayCount.objects.bulk_create(
        DayCount(account=each.account, day=day, used=1) for each in (api, stranger) for day in days
    )
    shown = staff.get("/admin/assist/daycount/").context["cl"]
    rest = staff.get("/admin/assist/daycount/" + shown.paginator.after).context["cl"]
    assert [row.day for row in (*shown.result_list, *rest.result_list)] == sorted(days * 2, reverse=True)


def balance_of(account: Any, service: str, number: int = 0) -> Balance:
    return Balance.objects.create(account_id=account.pk, namespace_id=f"ns_{number:016}", service=service)


def entry_of(balance: Balance) -> Entry:
    return Entry.objects.create(balance=balance, kind=EntryKind.CHARGE, amount=1, balance_after=1)


def reads_of(query: str, staff: Client) -> tuple[list[int], list[str]]:
    """The entries that a list shows, and its queries of the ledger."""
    with CaptureQueriesContext(connection) as captured:
        shown = staff.get(f"/admin/credits/entry/{query}").context["cl"].result_list
    return [row.pk for row in shown], [each["sql"] for each in captured if 'FROM "credits_entry"' in each["sql"]]


def test_entries_of_a_service_without_a_balance_are_not_looked_for(staff: Client, api: Caller) -> None:
    entry_of(balance_of(api.account, "sandbox"))
    assert reads_of("?balance__service__exact=cdn", staff) == ([], [])


@pytest.mark.parametrize("balances", [1, ServiceFilter.FEW, ServiceFilter.FEW + 1])
def test_entries_of_a_service_are_all_found(staff: Client, api: Caller, balances: int) -> None:
    other = balance_of(api.account, "sandbox")
    wanted = []
    for number in range(balances):
        wanted.append(entry_of(balance_of(api.account, "cdn", number)).pk)
        entry_of(other)
    found, (query,) = reads_of("?balance__service__exact=cdn", staff)
    assert found == list(reversed(wanted))
    assert ('"service" =' in query) is (balances > ServiceFilter.FEW)


def test_balances_of_some_namespaces_are_not_found_by_their_service() -> None:
    """As charges look for them: of the service there may be a hundred thousand."""
    Balance.objects.bulk_create(
        Balance(account_id=f"acc_{number}", namespace_id=f"ns_{number}", service="cdn") for number in range(MANY)
    )
    analyze("credits_balance")
    plan = Balance.objects.filter(service="cdn", namespace_id__in=["ns_1", "ns_2"]).explain()
    assert "one_balance_for_a_service" in plan, plan
    plan = Balance.objects.filter(service="rare").values_list("pk").explain()
    assert "balances_of_service" in plan, plan


@pytest.mark.parametrize("window", [first_rows.WINDOW, 55, 20])
def test_a_beginning_of_nearly_all_names_is_found_within_the_newest_files(
    staff: Client, api: Caller, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    whole = first_rows.WINDOW
    monkeypatch.setattr(first_rows, "WINDOW", window)
    files = [make_file(api.account, filename=f"Same {number}" if number % 10 else "other") for number in range(70)]
    with CaptureQueriesContext(connection) as captured:
        shown = staff.get("/admin/cdn/file/", {"q": "same"}).context["cl"]
    reads = [each["sql"] for each in captured if 'FROM "cdn_file"' in each["sql"]]
    assert len(reads) == (2 if window == whole else 3)
    assert "UPPER" not in reads[-1]
    wanted = sorted((row.pk for row in files if row.filename != "other"), reverse=True)
    assert [row.pk for row in shown.result_list] == wanted[:50]
    rest = staff.get("/admin/cdn/file/" + shown.paginator.after).context["cl"]
    assert [row.pk for row in rest.result_list] == wanted[50:]


def test_a_search_within_a_filter_finds_what_is_older_than_a_page(staff: Client, api: Caller) -> None:
    """The filter's condition is one of the rows that are looked up first, not only of those that are shown."""
    balance = Balance.objects.create(
        account_id=api.account.pk, namespace_id=Namespace.objects.get(account=api.account).pk, service="sandbox"
    )
    refund = Entry.objects.create(balance=balance, kind=EntryKind.REFUND, amount=1, balance_after=1)
    for _ in range(60):
        Entry.objects.create(balance=balance, kind=EntryKind.CHARGE, amount=1, balance_after=1)
    shown = staff.get("/admin/credits/entry/", {"kind__exact": "refund", "q": api.account.pk}).context["cl"]
    assert [row.pk for row in shown.result_list] == [refund.pk]
