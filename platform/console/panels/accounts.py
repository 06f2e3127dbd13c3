"""Accounts with their pools, and what may act for them: credentials, API keys, send tokens."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest
from django.utils.safestring import SafeString

from accounts.models import Account, Credential
from assist.models import ApiKey, DayCount, KeyEvent
from console.panels.columns import AUDIT, OPERATIONS, STAFF, WORKSPACES
from namespaces.models import Namespace
from notifications.audit import subject_of_token
from notifications.models import NotificationEvent, Send, SendToken
from staff.models import StaffEntry
from staff.parts.columns import badge, change_url, link, list_url, mebibytes_text, row_link, time_text
from staff.parts.pages import Bar, Panel, page, panel, table
from workspaces.models import Operation, Workspace
from workspaces.quota import Amount, account_usage, plan_pool, plan_running_pool

ACCOUNT, CREDENTIAL, KEY, TOKEN = (
    "accounts.Account",
    "accounts.Credential",
    "assist.ApiKey",
    "notifications.SendToken",
)


def _badges(row: Account) -> list[SafeString]:
    return [badge("active" if row.is_active else "inactive"), badge(row.plan.label)]


TABS = ("Overview", "Namespaces", "Workspaces", "Operations", "Credentials", "Staff")
page(ACCOUNT, *TABS, form_tab="Settings", badges=_badges)


@panel(ACCOUNT, "Overview", "workspaces.view_workspace")
def pool_panels(request: HttpRequest, row: Account) -> Iterator[Panel]:
    used = account_usage(row)
    records = Bar(
        "Workspaces", str(used.records), str(row.plan.max_workspaces), used.records / _some(row.plan.max_workspaces)
    )
    yield Panel("Owned", bars=[records, *_bars(used.owned, plan_pool(row.plan))])
    yield Panel("Running", bars=_bars(used.running, plan_running_pool(row.plan)))


def _bars(used: Amount, pool: Amount) -> list[Bar]:
    return [
        Bar("CPUs", f"{used.cpus:g}", f"{pool.cpus:g}", used.cpu_millis / _some(pool.cpu_millis)),
        _mebibytes("Memory", used.memory_mb, pool.memory_mb),
        _mebibytes("Disk", used.disk_size_mb, pool.disk_size_mb),
    ]


def _mebibytes(label: str, used: int, limit: int) -> Bar:
    return Bar(label, mebibytes_text(used), mebibytes_text(limit), used / _some(limit))


def _some(limit: float) -> float:
    """Return a limit to divide by: of nothing that is allowed, everything is used."""
    return limit or 1


@panel(ACCOUNT, "Namespaces", "namespaces.view_namespace")
def namespaces_panel(request: HttpRequest, row: Account) -> Panel:
    columns = (
        ("Slug", lambda one: row_link(one, one.slug)),
        ("Name", lambda one: one.name),
        ("Status", lambda one: badge(one.status)),
        ("Last active", lambda one: time_text(one.last_active_at)),
    )
    found = Namespace.objects.filter(account=row).order_by("-id")
    return table("Namespaces", found, columns, more=list_url("namespaces.Namespace", by_account=row.pk))


@panel(ACCOUNT, "Workspaces", "workspaces.view_workspace")
def workspaces_panel(request: HttpRequest, row: Account) -> Panel:
    found = Workspace.objects.filter(account=row).defer("env", "workloads").order_by("-created_at", "-id")
    return table("Newest workspaces", found, WORKSPACES, more=list_url("workspaces.Workspace", by_account=row.pk))


@panel(ACCOUNT, "Operations", "workspaces.view_operation")
def operations_panel(request: HttpRequest, row: Account) -> Panel:
    columns = (("Workspace", lambda one: row_link(one.workspace, one.workspace.name)), *OPERATIONS)
    found = Operation.objects.filter(account_id=row.pk).select_related("workspace")
    newest = found.defer("params", "workspace__env", "workspace__workloads").order_by("-id")
    return table("Newest operations", newest, columns, more=list_url("workspaces.Operation", by_account_id=row.pk))


@panel(ACCOUNT, "Credentials", "accounts.view_credential")
def credentials_panel(request: HttpRequest, row: Account) -> Panel:
    columns = (
        ("Client id", lambda one: row_link(one, one.client_id)),
        ("Name", lambda one: one.name or "-"),
        ("Scope", lambda one: one.scope),
        ("Last used", lambda one: time_text(one.last_used_at)),
    )
    found = Credential.objects.filter(account=row).order_by("-id")
    return table("Credentials", found, columns, more=list_url("accounts.Credential", by_account=row.pk))


@panel(ACCOUNT, "Staff", "staff.view_staffentry")
def staff_panel(request: HttpRequest, row: Account) -> Panel:
    found = StaffEntry.objects.filter(account_id=row.pk).order_by("-at", "-id")
    return table("Done by staff", found, STAFF, more=list_url("staff.StaffEntry", q=row.pk))


page(CREDENTIAL, "Overview", form_tab="Settings", badges=lambda row: [badge(row.scope)])


@panel(CREDENTIAL, "Overview")
def credential_panel(request: HttpRequest, row: Credential) -> Panel:
    facts = [
        ("Account", row_link(row.account)),
        ("Client id", row.client_id),
        ("Namespace", link(row.namespace_slug, change_url("namespaces.Namespace", row.namespace_id))),
        ("Workspace", link(row.workspace_id, change_url("workspaces.Workspace", row.workspace_id))),
        ("Rotations", row.epoch - 1),
        ("Last used", time_text(row.last_used_at)),
        ("Created", time_text(row.created_at)),
    ]
    return Panel("Credential", facts, note="Its secret is stored as a hash and was shown once.")


page(KEY, "Overview", "Activity", form_tab="Settings")


@panel(KEY, "Overview")
def key_panel(request: HttpRequest, row: ApiKey) -> Iterator[Panel]:
    facts = [
        ("Account", row_link(row.account)),
        ("Namespace", row_link(row.namespace)),
        ("Begins with", row.key_prefix),
        ("Last used", time_text(row.last_used_at)),
        ("Created", time_text(row.created_at)),
    ]
    yield Panel("API key", facts, note="The key is stored as a hash and was shown once.")
    columns = (("Day", lambda one: one.day), ("Calls", lambda one: one.used))
    found = DayCount.objects.filter(account_id=row.account_id).order_by("-day")
    more = list_url("assist.DayCount", by_account=row.account_id)
    yield table("Calls of the account by day", found, columns, more=more, wide=False)


@panel(KEY, "Activity", "assist.view_keyevent")
def key_events_panel(request: HttpRequest, row: ApiKey) -> Panel:
    found = KeyEvent.objects.filter(key_id=row.pk).order_by("-id")
    return table("Who did what", found, AUDIT, more=list_url("assist.KeyEvent", by_key_id=row.pk))


page(TOKEN, "Overview", "Sends", "Activity")


@panel(TOKEN, "Overview")
def token_panel(request: HttpRequest, row: SendToken) -> Panel:
    facts = [
        ("Account", row_link(row.account)),
        ("Workspace", link(row.workspace_id, change_url("workspaces.Workspace", row.workspace_id))),
        ("Begins with", row.token_prefix),
        ("Last used", time_text(row.last_used_at)),
        ("Revoked", time_text(row.revoked_at)),
        ("Created", time_text(row.created_at)),
    ]
    return Panel("Send token", facts, note="The token is stored as a hash and was shown once.")


@panel(TOKEN, "Sends", "notifications.view_send")
def sends_panel(request: HttpRequest, row: SendToken) -> Panel:
    columns = (
        ("Send", lambda one: row_link(one, one.pk)),
        ("State", lambda one: badge(one.state)),
        ("Devices", lambda one: one.devices),
        ("Delivered", lambda one: one.delivered),
        ("Failed", lambda one: one.failed),
        ("When", lambda one: time_text(one.created_at)),
    )
    found = Send.objects.filter(workspace_id=row.workspace_id, token_id=row.pk).defer("content").order_by("-id")
    more = list_url("notifications.Send", by_workspace_id=row.workspace_id)
    return table("Sends of the last day", found, columns, more=more)


@panel(TOKEN, "Activity", "notifications.view_notificationevent")
def token_events_panel(request: HttpRequest, row: SendToken) -> Panel:
    about = subject_of_token(row)
    found = NotificationEvent.objects.filter(subject=about).order_by("-id")
    return table("Who did what", found, AUDIT, more=list_url("notifications.NotificationEvent", by_subject=about))
