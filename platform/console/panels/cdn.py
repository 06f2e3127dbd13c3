"""CDN: the pool of an account or namespace, and a file."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest

from cdn.models import File, FileEvent, NamespaceQuota, PlanLimits, Pool, Template, Variant
from console.panels.columns import AUDIT, FILES
from staff.parts.columns import badge, bytes_text, list_url, row_link, time_text
from staff.parts.pages import Bar, Panel, page, panel, table

POOL, FILE = "cdn.Pool", "cdn.File"

page(POOL, "Overview", "Files", badges=lambda row: [badge(row.kind)])


@panel(POOL, "Overview")
def pool_panels(request: HttpRequest, row: Pool) -> Iterator[Panel]:
    most, monthly = _limits(row)
    kept = row.stored_bytes + row.trashed_bytes + row.reserved_bytes
    bars = [_bar("Stored, trash and reserved", kept, most), _bar(f"Published in {row.month}", row.month_bytes, monthly)]
    yield Panel("Of its limits", bars=bars)
    facts = [
        ("Account", row_link(row.account)),
        ("Namespace", row_link(row.namespace)),
        ("Files", f"{row.stored_files} ({bytes_text(row.stored_bytes)})"),
        ("In the trash", f"{row.trashed_files} ({bytes_text(row.trashed_bytes)})"),
        ("Reserved", f"{row.reserved_files} ({bytes_text(row.reserved_bytes)})"),
        ("Rejected", row.rejected_files),
        ("Open permits", row.open_permits),
    ]
    yield Panel("Counters", facts)


def _limits(row: Pool) -> tuple[int | None, int | None]:
    """Return the nearest ones that are set: of the namespace, the account's template, the plan."""
    found: list[NamespaceQuota | Template] = []
    if row.namespace_id is not None:
        found += NamespaceQuota.objects.filter(pk=row.namespace_id)
        found += Template.objects.filter(pk=row.account_id)
    most = next((one.cdn_max_bytes for one in found if one.cdn_max_bytes is not None), None)
    monthly = next((one.cdn_monthly_bytes for one in found if one.cdn_monthly_bytes is not None), None)
    plan = PlanLimits.objects.filter(plan__accounts=row.account_id).first()
    if plan is None:
        return most, monthly
    return plan.max_bytes if most is None else most, plan.monthly_bytes if monthly is None else monthly


def _bar(label: str, used: int, limit: int | None) -> Bar:
    share = None if limit is None else used / limit if limit else 1.0
    return Bar(label, bytes_text(used), "" if limit is None else bytes_text(limit), share)


@panel(POOL, "Files", "cdn.view_file")
def files_panel(request: HttpRequest, row: Pool) -> Panel:
    owner = {"namespace": row.namespace_id} if row.namespace_id else {"account": row.account_id}
    more = list_url("cdn.File", **{f"by_{name}": key for name, key in owner.items()})
    return table("Newest files", File.objects.filter(**owner).order_by("-created_at", "-id"), FILES, more=more)


page(FILE, "Overview", "Activity")


@panel(FILE, "Overview")
def file_panels(request: HttpRequest, row: File) -> Iterator[Panel]:
    facts = [
        ("Account", row_link(row.account)),
        ("Namespace", row_link(row.namespace)),
        ("Type", row.content_type or f"claimed: {row.claimed_type}"),
        ("Size", bytes_text(row.size)),
        ("With its variants", bytes_text(row.footprint)),
        ("Picture", f"{row.width} by {row.height}" if row.width else "-"),
        ("Asked for by", row.actor or "-"),
        ("Created", time_text(row.created_at)),
        ("Published", time_text(row.published_at)),
        ("In the trash since", time_text(row.trashed_at)),
    ]
    error = row.error or {}
    yield Panel("File", facts)
    failed = [("Why", error.get("message") or error.get("code") or error)] if error else []
    yield Panel("Processing", [("Status", badge(row.status)), ("Attempts", row.attempt), *failed])
    columns = (
        ("Variant", lambda one: one.name),
        ("Pixels", lambda one: f"{one.width} by {one.height}"),
        ("Size", lambda one: bytes_text(one.size)),
    )
    yield table("Variants", Variant.objects.filter(file=row).order_by("index"), columns)


@panel(FILE, "Activity", "cdn.view_fileevent")
def events_panel(request: HttpRequest, row: File) -> Panel:
    found = FileEvent.objects.filter(file_id=row.pk).order_by("-id")
    return table("Who did what", found, AUDIT, more=list_url("cdn.FileEvent", by_file_id=row.pk))
