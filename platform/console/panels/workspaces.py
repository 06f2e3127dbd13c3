"""The page of a workspace: its state and what it waits for, live numbers, lifecycle, operations, activity, usage."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from common.times import from_epoch
from console.panels.columns import AUDIT, ENTRIES, OPERATIONS, SNAPSHOTS, STAFF
from console.terminals import TERMINAL
from credits.models import Balance, Entry
from sandboxes.models import Sandbox
from sandboxes.tokens import STAFF_PERMISSION
from staff.models import StaffEntry
from staff.parts.columns import (
    BUSY,
    WARNING,
    badge,
    bytes_text,
    change_url,
    duration_text,
    link,
    list_url,
    mebibytes_text,
    row_link,
    taken,
    time_text,
)
from staff.parts.pages import Chart, Panel, page, panel, table
from workspaces.models import Activity, Metered, Operation, Snapshot, Usage, Workspace, WorkspaceHour
from workspaces.models.workspace import Kind
from workspaces.states import Status
from workspaces.streams.staff_tokens import PERMISSION as LIVE

WORKSPACE = "workspaces.Workspace"
HOURS = 72


def _badges(row: Workspace) -> list[SafeString]:
    found = [badge(row.status, title=row.error_message)]
    if row.unresponsive_since:
        found.append(badge("unresponsive", WARNING, f"since {row.unresponsive_since:%Y-%m-%d %H:%M:%S} UTC"))
    if row.pending_resources:
        found.append(badge("new sizes at the next start", BUSY))
    return [*found, badge(row.kind), badge(row.mode)]


page(
    WORKSPACE, "Overview", "Live", "Network", "Lifecycle", "Operations", "Activity", "Usage and credits", badges=_badges
)


@panel(WORKSPACE, "Overview", "workspaces.view_workspace")
def state_panels(request: HttpRequest, row: Workspace) -> Iterator[Panel]:
    yield Panel("State", _state(row))
    if request.user.has_perm("workspaces.view_operation"):
        yield _waits_for(row)
    yield Panel("Belongs to", list(_owners(request, row)))
    yield Panel("Machine", _machine(row))


def _state(row: Workspace) -> list[tuple[str, object]]:
    failure, creation = row.failure, row.provisioning_failure
    return [
        ("Status", badge(row.status)),
        ("Ready", "yes" if row.ready else "no"),
        ("Why", f"{failure.message} ({failure.code})" if failure else "-"),
        ("Running since", time_text(row.started_at) if row.is_running else "-"),
        ("Last exit", f"{row.last_exit_reason or '-'}, code {row.last_exit_code}" if row.last_exit_reason else "-"),
        ("Creation", f"{row.provisioning_phase}, {row.provisioning_progress} %"),
        ("Creation failed", f"{creation.message} ({creation.code})" if creation else "-"),
        ("Changed", time_text(row.updated_at)),
    ]


def _waits_for(row: Workspace) -> Panel:
    live = Operation.objects.filter(workspace=row, finished_at=None).order_by("created_at").first()
    if live is None:
        return Panel("Waits for", empty="No operation is in flight.")
    facts = [
        ("Operation", row_link(live, live.kind)),
        ("State", badge(live.state)),
        ("Step", live.step or "-"),
        ("Attempt", live.attempt),
        ("Requested", time_text(live.created_at)),
        ("By", live.actor or "-"),
        ("Lease until", time_text(live.lease_until)),
        ("Deadline", time_text(live.deadline_at)),
        ("For", taken(live.created_at, None)),
        ("Queue", live.queue),
    ]
    return Panel("Waits for", facts)


def _owners(request: HttpRequest, row: Workspace) -> Iterator[tuple[str, object]]:
    yield "Account", row_link(row.account)
    yield "Namespace", row_link(row.namespace)
    yield "Host", row_link(row.host)
    if request.user.has_perm("sandboxes.view_sandbox"):
        sandbox = Sandbox.objects.filter(workspace=row).only("id").first()
        yield "Sandbox", link(sandbox.pk, change_url("sandboxes.Sandbox", sandbox.pk)) if sandbox else "-"
    yield "Pages", link("pages made of it", list_url("pages.Page", by_source_workspace_id=row.pk))
    yield "Send tokens", link("its tokens", list_url("notifications.SendToken", by_workspace=row.pk))


def _machine(row: Workspace) -> list[tuple[str, object]]:
    applied = row.applied
    return [
        ("Image", row.image),
        ("Preset", row.preset or "-"),
        ("Began from", row.started_from or "-"),
        ("Made from the snapshot", row.source_snapshot_id or "-"),
        ("CPUs", f"{row.cpus} (has {applied.cpus})"),
        ("Memory", f"{mebibytes_text(row.memory_mb)} (has {mebibytes_text(applied.memory_mb)})"),
        ("Disk", f"{mebibytes_text(row.disk_size_mb)} (has {mebibytes_text(applied.disk_size_mb)})"),
        ("Slug", row.slug or "-"),
        ("Created", time_text(row.created_at)),
    ]


@panel(WORKSPACE, "Live", LIVE)
def live_panel(request: HttpRequest, row: Workspace) -> Panel:
    data = {
        "address": reverse("admin:workspaces_workspace_live", args=[row.pk]),
        "terminal": _terminal_address(row) if request.user.has_perm(STAFF_PERMISSION) else "",
    }
    return Panel("Numbers and console", template="console/live.html", data=data, wide=True)


def _terminal_address(row: Workspace) -> str:
    """Return the address at which a terminal is opened; empty if there is none: a workspace is not woken for it."""
    if row.kind == Kind.SANDBOX:
        sandbox = Sandbox.objects.filter(workspace=row).only("id").first()
        return change_url("sandboxes.Sandbox", sandbox.pk) if sandbox else ""
    if row.status != Status.RUNNING:
        return ""
    page = reverse("admin:workspaces_workspace_staff_action", args=[TERMINAL.name])
    return f"{page}?{urlencode({'row': row.pk, 'at': 'row'})}"


@panel(WORKSPACE, "Lifecycle")
def lifecycle_panels(request: HttpRequest, row: Workspace) -> Iterator[Panel]:
    yield Panel(
        "Life and rest",
        [
            ("Mode", row.mode),
            ("Time to live", duration_text(row.ttl_seconds) if row.ttl_seconds else "-"),
            ("Ends", time_text(row.ttl_expires_at)),
            ("Then", row.ttl_action),
            ("Sleeps when unused for", duration_text(row.suspend_after) if row.suspend_after else "never"),
            ("Sleeps", time_text(row.idle_due_at)),
            ("Saved memory is dropped", time_text(row.memory_expires_at)),
        ],
    )
    yield Panel(
        "Restarts",
        [
            ("Policy", row.restart_policy),
            ("Restarts", f"{row.restart_count} of {row.max_restarts or 'any number'}"),
            ("Last restart", time_text(row.last_restart_at)),
            ("Next restart", time_text(row.restart_due_at)),
            ("Removed on exit", "yes" if row.remove_on_exit else "no"),
            ("Stopped by the owner", "yes" if row.user_requested_stop else "no"),
        ],
    )


@panel(WORKSPACE, "Lifecycle", "workspaces.view_snapshot")
def snapshots_panel(request: HttpRequest, row: Workspace) -> Panel:
    """Return its snapshots, also those that are deleted and still on the host. Columns with secrets are not read."""
    found = Snapshot.objects.filter(workspace=row).defer("env", "workloads").order_by("-id")
    return table("Snapshots", found, SNAPSHOTS, more=list_url("workspaces.Snapshot", by_workspace=row.pk))


@panel(WORKSPACE, "Operations", "workspaces.view_operation")
def operations_panel(request: HttpRequest, row: Workspace) -> Panel:
    found = Operation.objects.filter(workspace=row).defer("params").order_by("-id")
    return table("Operations", found, OPERATIONS, more=list_url("workspaces.Operation", by_workspace=row.pk))


@panel(WORKSPACE, "Activity", "workspaces.view_activity")
def activity_panel(request: HttpRequest, row: Workspace) -> Panel:
    found = Activity.objects.filter(workspace_id=row.pk).order_by("-id")
    more = list_url("workspaces.Activity", by_workspace_id=row.pk)
    return table("Activity, as its owner reads it", found, AUDIT, more=more)


@panel(WORKSPACE, "Activity", "staff.view_staffentry")
def staff_panel(request: HttpRequest, row: Workspace) -> Panel:
    found = StaffEntry.objects.filter(object_type="workspaces.workspace", object_id=row.pk).order_by("-at", "-id")
    return table("Done by staff", found, STAFF, more=list_url("staff.StaffEntry", q=row.pk))


@panel(WORKSPACE, "Usage and credits", "workspaces.view_usage")
def usage_panels(request: HttpRequest, row: Workspace) -> Iterator[Panel]:
    usage = Usage.objects.filter(workspace=row).first()
    if usage is not None:
        facts = [
            ("CPU time", duration_text(usage.total_cpu_time_ns / 1e9)),
            ("Read from disk", bytes_text(usage.total_disk_read)),
            ("Written to disk", bytes_text(usage.total_disk_write)),
            ("Received", bytes_text(usage.total_net_rx)),
            ("Sent", bytes_text(usage.total_net_tx)),
            ("Tracked", "yes" if usage.tracking else "no"),
        ]
        yield Panel("Totals", facts, more=list_url("workspaces.MeterRecord", q=row.pk))
    yield _charged(row)


def _charged(row: Workspace) -> Panel:
    metered = list(Metered.objects.filter(workspace_id=row.pk).values_list("pk", flat=True))
    hours = WorkspaceHour.objects.filter(metered__in=metered).order_by("-start").values_list("start", "credits")
    found = sorted(hours[:HOURS])
    labels = [time_label(start) for start, _ in found]
    chart = Chart("charged", labels, [("credits", [float(amount) for _, amount in found])], "bar") if found else None
    return Panel(
        "Credits by hour", chart=chart, empty="Nothing was charged yet.", note="Hours in which it was metered."
    )


def time_label(start: int) -> str:
    """Return seconds since 1970 as the label of a chart."""
    return f"{from_epoch(start):%d %b %H:00}"


@panel(WORKSPACE, "Usage and credits", "credits.view_entry")
def ledger_panel(request: HttpRequest, row: Workspace) -> Panel:
    """Return entries of the balance that pays for the machine: the ledger has no index by workspace."""
    entries: QuerySet[Entry] = Entry.objects.none()
    balance = Balance.objects.filter(namespace_id=row.namespace_id, service="sandbox").first()
    if balance is not None:
        entries = Entry.objects.filter(balance=balance).order_by("-id")
    more = list_url("credits.Entry", by_balance=balance.pk) if balance else ""
    return table("Ledger of its namespace", entries, ENTRIES, more=more)
