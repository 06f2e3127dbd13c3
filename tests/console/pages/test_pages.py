"""Pages of rows in the admin: their tabs, what they lead to, what they cost, and that no secret is on any."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from notifications.audit import record_token
from notifications.models import SendToken
from staff.models import StaffEntry
from tests.callers import Caller
from tests.console.pages.sample import PLANTED, make_account, make_sample
from tests.console.pages.test_dashboard import reader
from tests.workspaces.rows import make_host, make_workspace
from workspaces.models import Activity, Operation, Snapshot, StreamToken, Workspace

pytestmark = pytest.mark.django_db
WITH_TABS = {
    "workspaces.Workspace": ["Overview", "Live", "Network", "Lifecycle", "Operations", "Activity", "Usage and credits"],
    "namespaces.Namespace": ["Overview", "Workspaces", "Credits", "Activity"],
    "vmbackend.Host": ["Overview", "Machines", "Operations"],
    "pages.Page": ["Overview", "Releases", "Deploys", "Activity"],
    "certificates.Certificate": ["Overview", "Orders"],
    "cdn.Pool": ["Overview", "Files"],
    "cdn.File": ["Overview", "Activity"],
    "webhooks.Subscription": ["Overview", "Deliveries", "Activity"],
    "webhooks.Delivery": ["Overview"],
    "accounts.Account": ["Overview", "Namespaces", "Workspaces", "Operations", "Credentials", "Staff"],
    "accounts.Credential": ["Overview"],
    "assist.ApiKey": ["Overview", "Activity"],
    "notifications.SendToken": ["Overview", "Sends", "Activity"],
    "credits.Balance": ["Overview", "Ledger"],
}
MANY = ["workspaces.Workspace", "accounts.Account", "namespaces.Namespace", "vmbackend.Host"]
MODELS = {model._meta.label: model for model in admin.site._registry}


def page_of(row: Any) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


@pytest.mark.parametrize("label", WITH_TABS)
def test_a_page_has_its_tabs_and_every_link_leads_somewhere(staff: Client, label: str) -> None:
    make_sample(2)
    answer = staff.get(page_of(MODELS[label]._default_manager.first()))
    assert [tab.label for tab in answer.context["page_tabs"]] == WITH_TABS[label]
    text = answer.content.decode()
    links = {unescape(link) for link in re.findall(r'class="mvm-link" href="([^"]+)"', text)}
    assert [link for link in links if staff.get(link).status_code != 200] == []


def test_the_page_of_a_workspace_says_what_it_waits_for(staff: Client) -> None:
    make_sample(1)
    row = Workspace.objects.get(kind="workspace")
    text = staff.get(page_of(row)).content.decode()
    operation = Operation.objects.get(workspace=row, state="running")
    assert page_of(operation) in text
    assert "wait_for_guest" in text
    assert f"{operation.deadline_at:%Y-%m-%d %H:%M:%S} UTC" in text
    assert text.count("mvm-badge mvm-good") >= 2
    for other in (row.account, row.namespace, row.host):
        assert page_of(other) in text


def test_the_page_of_a_workspace_has_its_snapshots_without_their_secrets(staff: Client) -> None:
    make_sample(1)
    row = Workspace.objects.get(kind="workspace")
    kept = Snapshot.objects.get()
    text = staff.get(page_of(row)).content.decode()
    assert page_of(kept) in text
    assert kept.name in text
    found = [
        staff.get(url).content.decode() for url in (page_of(kept), reverse("admin:workspaces_snapshot_changelist"))
    ]
    assert not any(PLANTED in each for each in (text, *found))
    assert page_of(kept) not in reader("view_workspace").get(page_of(row)).content.decode()


def test_the_page_of_a_send_token_says_what_was_done_to_it(staff: Client) -> None:
    make_sample(1)
    token = SendToken.objects.get()
    assert "the second key" not in staff.get(page_of(token)).content.decode()
    record_token(token, "rotated", actor="the second key")
    assert "the second key" in staff.get(page_of(token)).content.decode()


def test_a_page_opens_at_the_tab_of_its_address(staff: Client) -> None:
    make_sample(1)
    row = Workspace.objects.get(kind="workspace")
    assert staff.get(page_of(row), {"tab": "operations"}).context["page_active"] == "operations"
    assert staff.get(page_of(row), {"tab": "<x>"}).context["page_active"] == "overview"


@pytest.mark.parametrize(
    "label", ["workspaces.Workspace", "accounts.Account", "namespaces.Namespace", "vmbackend.Host"]
)
def test_a_page_has_the_same_queries_with_more_rows(staff: Client, label: str) -> None:
    make_sample(1)
    row = MODELS[label]._default_manager.first()
    few = queries(staff, page_of(row))
    account, host = Workspace.objects.filter(kind="workspace")[0].account, make_host("host-a")
    for number in range(1, 9):
        make_account(number, host)
        make_workspace(account, host=host, ip=f"10.203.0.{number}")
    assert queries(staff, page_of(row)) == few


def queries(client: Client, url: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


def test_what_a_role_may_not_view_is_in_no_tab(db: None) -> None:
    make_sample(1)
    row = Workspace.objects.get(kind="workspace")
    answer = reader("view_workspace").get(page_of(row))
    assert [tab.label for tab in answer.context["page_tabs"]] == ["Overview", "Network", "Lifecycle"]
    text = answer.content.decode()
    assert "wait_for_guest" not in text
    assert "Watch live" not in text
    assert reader("view_workspace", "view_operation").get(page_of(row)).content.decode().count("wait_for_guest") >= 1


def test_no_secret_is_on_any_page_of_the_admin(staff: Client) -> None:
    """Of lists, searches and rows; what is planted is in every column that is encrypted, hashed, or an owner's own."""
    make_sample(1)
    pages = {"/admin/": staff.get("/admin/").content.decode()}
    for model in admin.site._registry:
        base = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        rows = [page_of(row) for row in model._default_manager.all()[:1]]
        for url in (base, *rows):
            answer = staff.get(url)
            assert answer.status_code == 200, url
            pages[url] = answer.content.decode()
    assert len(pages) > 90
    assert [url for url, text in pages.items() if PLANTED in text] == []


# The live view


def live(client: Client, row: Workspace) -> Any:
    return client.post(reverse("admin:workspaces_workspace_live", args=[row.pk]))


def test_the_live_view_gets_a_token_and_is_in_both_audit_logs(staff: Client, api: Caller) -> None:
    row = make_workspace(api.account)
    answer = live(staff, row)
    body = answer.json()
    assert (answer.status_code, "no-store" in answer["Cache-Control"]) == (200, True)
    assert body["stats"] == f"/workspace/{row.pk}/stats/stream"
    assert StreamToken.objects.get().pk not in body["token"]
    entry, activity = StaffEntry.objects.get(action="view_live"), Activity.objects.get(action="staff_view")
    assert (entry.object_id, entry.user_name) == (row.pk, "root")
    assert (activity.workspace_id, activity.actor) == (row.pk, "staff root")


def test_the_live_view_needs_its_permission_a_post_and_a_workspace(staff: Client, api: Caller) -> None:
    row = make_workspace(api.account)
    assert live(reader("view_workspace", "change_workspace"), row).status_code == 403
    assert staff.get(reverse("admin:workspaces_workspace_live", args=[row.pk])).status_code == 405
    assert staff.post("/admin/workspaces/workspace/ws_2222222222222222/live/").status_code == 404
    assert live(Client(), row).status_code == 302
    assert not StreamToken.objects.exists()
    assert not StaffEntry.objects.exists()
    assert live(reader("view_workspace", "add_streamtoken", "x"), row).status_code == 200
