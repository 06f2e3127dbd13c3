"""The page of a namespace: what is in it, its limits and quotas, the ledger, who did what."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from django.db.models import Count, Q, Sum
from django.http import HttpRequest
from django.utils.safestring import SafeString

from cdn.models import NamespaceQuota, Pool
from console.panels.columns import AUDIT, ENTRIES, STAFF, WORKSPACES
from credits.models import Balance, Spending
from credits.quota_shares import used_share
from credits.selectors import recent_entries, spending_of, timeline_of
from namespaces.models import Namespace, NamespaceActivity
from staff.models import StaffEntry
from staff.parts.columns import (
    BAD,
    WARNING,
    badge,
    bytes_text,
    change_url,
    credits_text,
    list_url,
    row_link,
    time_text,
)
from staff.parts.pages import Bar, Chart, Panel, page, panel, table
from workspaces.models import Workspace
from workspaces.states import OWNS_NOTHING

NAMESPACE = "namespaces.Namespace"
SPENDING_DAYS = 30


def _badges(row: Namespace) -> list[SafeString]:
    found = [badge(row.status), badge(row.type)]
    if row.suspended_by_hand:
        found.append(badge("suspended by hand", BAD))
    if row.suspended_by_quota:
        found.append(badge("suspended by its quota", WARNING))
    return [*found, badge("the default one")] if row.is_default else found


page(NAMESPACE, "Overview", "Workspaces", "Credits", "Activity", form_tab="Settings", badges=_badges)


@panel(NAMESPACE, "Overview")
def overview_panels(request: HttpRequest, row: Namespace) -> Iterator[Panel]:
    facts = [
        ("Account", row_link(row.account)),
        ("Name", row.name),
        ("Id", row.pk),
        ("Last active", time_text(row.last_active_at)),
        ("Created", time_text(row.created_at)),
        ("Being deleted", time_text(row.deleted_at) if row.deleted_at else "no"),
    ]
    yield Panel("Namespace", facts)
    if request.user.has_perm("workspaces.view_workspace"):
        yield _resources(row)


def _resources(row: Namespace) -> Panel:
    owned = Workspace.objects.filter(~Q(status__in=OWNS_NOTHING), namespace=row).order_by()
    used = owned.aggregate(
        count=Count("pk"), cpus=Sum("cpu_millis", default=0), memory=Sum("memory_mb", default=0),
        disk=Sum("disk_size_mb", default=0),
    )  # fmt: skip
    limits = row.resource_limits
    shown = (
        ("Workspaces", used["count"], limits.get("max_workspaces")),
        ("CPUs", used["cpus"] / 1000, limits.get("max_vcpus")),
        ("Memory (MiB)", used["memory"], limits.get("max_ram_mb")),
        ("Disk (GiB)", used["disk"] / 1024, limits.get("max_disk_gb")),
    )
    return Panel("Owned, of the namespace's own limits", bars=[_bar(*each) for each in shown])


def _bar(label: str, used: float, limit: float | None) -> Bar:
    if limit is None:
        return Bar(label, f"{used:,.5g}")
    return Bar(label, f"{used:,.5g}", f"{limit:,.5g}", used / limit if limit else 1.0)


@panel(NAMESPACE, "Overview", "cdn.view_pool")
def cdn_panel(request: HttpRequest, row: Namespace) -> Panel:
    pool, quota = Pool.objects.filter(pk=row.pk).first(), NamespaceQuota.objects.filter(pk=row.pk).first()
    if pool is None:
        return Panel("CDN", empty="No file yet.")
    kept = pool.stored_bytes + pool.trashed_bytes + pool.reserved_bytes
    limit = quota.cdn_max_bytes if quota else None
    share = kept / limit if limit else None
    bars = [Bar("Stored, trash and reserved", bytes_text(kept), bytes_text(limit) if limit else "", share)]
    return Panel("CDN", bars=bars, more=list_url("cdn.File", by_namespace=row.pk))


@panel(NAMESPACE, "Workspaces", "workspaces.view_workspace")
def workspaces_panel(request: HttpRequest, row: Namespace) -> Panel:
    found = Workspace.objects.filter(namespace=row).defer("env", "workloads").order_by("-id")
    return table("Workspaces", found, WORKSPACES, more=list_url("workspaces.Workspace", by_namespace=row.pk))


@panel(NAMESPACE, "Credits", "credits.view_balance")
def quota_panels(request: HttpRequest, row: Namespace) -> Iterator[Panel]:
    balances = list(Balance.objects.filter(namespace_id=row.pk).order_by("service"))
    bars = [
        Bar(
            balance.get_service_display(),
            credits_text(balance.used + balance.held),
            credits_text(balance.quota_limit) if balance.quota_limit is not None else "",
            used_share(balance),
            change_url("credits.Balance", balance.pk),
        )
        for balance in balances
    ]
    yield Panel("Quotas: used and held", bars=bars, empty="Nothing was spent, and no quota is set.")
    days = timeline_of(spending_of(row, days=SPENDING_DAYS))
    labels, values = [day["date"] for day in days], [float(day["credits"]) for day in days]
    chart = Chart("spent", labels, [("credits", values)], "bar") if days else None
    yield Panel("Credits by day", chart=chart, empty=f"Nothing in {SPENDING_DAYS} days.")


@panel(NAMESPACE, "Credits", "credits.view_entry")
def ledger_panel(request: HttpRequest, row: Namespace) -> Panel:
    more = list_url("credits.Entry", q=row.pk)
    return table("Ledger", recent_entries(row), ENTRIES, more=more)


@panel(NAMESPACE, "Activity", "namespaces.view_namespaceactivity")
def activity_panel(request: HttpRequest, row: Namespace) -> Panel:
    found = NamespaceActivity.objects.filter(namespace_id=row.pk).order_by("-id")
    more = list_url("namespaces.NamespaceActivity", by_namespace_id=row.pk)
    return table("Who did what", found, AUDIT, more=more)


@panel(NAMESPACE, "Activity", "staff.view_staffentry")
def staff_panel(request: HttpRequest, row: Namespace) -> Panel:
    found = StaffEntry.objects.filter(object_type="namespaces.namespace", object_id=row.pk).order_by("-at", "-id")
    return table("Done by staff", found, STAFF, more=list_url("staff.StaffEntry", q=row.pk))


BALANCE = "credits.Balance"
page(BALANCE, "Overview", "Ledger")


@panel(BALANCE, "Overview")
def balance_panels(request: HttpRequest, row: Balance) -> Iterator[Panel]:
    limit = row.quota_limit
    quota = [
        Bar("Used", credits_text(row.used), credits_text(limit) if limit is not None else "", _share(row.used, limit)),
        Bar("Held", credits_text(row.held), "", None),
    ]
    facts = [
        ("Overdraft", credits_text(row.overdraft)),
        ("When used up", row.get_on_overdraft_action_display()),
        ("Announced at", ", ".join(f"{threshold} %" for threshold in row.notification_thresholds) or "-"),
    ]
    yield Panel(f"Quota for {row.get_service_display()}", facts, bars=quota)
    days = list(Spending.objects.filter(balance=row).order_by("-day")[:SPENDING_DAYS])[::-1]
    values = [float(day.credits) for day in days]
    chart = Chart("spent", [str(day.day) for day in days], [("credits", values)], "bar") if days else None
    yield Panel("Credits by day", chart=chart, empty="Nothing was charged.")


def _share(used: Decimal, limit: Decimal | None) -> float | None:
    if limit is None:
        return None
    return float(used / limit) if limit else 1.0


@panel(BALANCE, "Ledger", "credits.view_entry")
def entries_panel(request: HttpRequest, row: Balance) -> Panel:
    found = row.entries.order_by("-id")
    return table("Ledger", found, ENTRIES, more=list_url("credits.Entry", by_balance=row.pk))
