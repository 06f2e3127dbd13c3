"""The start page of the admin, made of what its reader may view. At most twelve queries, the session's included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.http import HttpRequest
from django.utils.safestring import SafeString

from console import figures
from console.figures import Backlog
from console.models import HourlySummary
from console.summary import STATUS_COUNTS, Details
from staff.parts.columns import (
    BAD,
    BUSY,
    GOOD,
    QUIET,
    WARNING,
    badge,
    change_url,
    link,
    list_url,
    mebibytes_text,
    row_link,
    shortened,
    taken,
    time_text,
)
from staff.parts.pages import Bar, Chart, Panel
from vmbackend.models import Host
from workspaces.host_columns import host_badge
from workspaces.models import Operation
from workspaces.placement import uncommitted_memory
from workspaces.states import Status

Allowed = Callable[[str], bool]
WORKSPACES, OPERATIONS = "workspaces.Workspace", "workspaces.Operation"
# One tile each; all other states are of operations in flight.
AT_REST = (Status.RUNNING, Status.SLEEPING, Status.PAUSED, Status.STOPPED, Status.FAILED, Status.LOST)
OPERATION_TILES = (
    ("live", "operations in flight", BUSY),
    ("failed", "failed in a day", BAD),
    ("slow", "slow in a day", WARNING),
)
TREND = (Status.RUNNING, Status.SLEEPING, Status.STOPPED, Status.FAILED)
# Name of a backlog: what is said, the list with its filter, how it is shown if there is any.
HEALTH: dict[str, tuple[str, str, dict[str, str], str]] = {
    "deliveries_due": ("Webhook deliveries due", "webhooks.Delivery", {"status__exact": "pending"}, BUSY),
    "webhooks_failing": ("Webhooks failing", "webhooks.Subscription", {"trouble": "failing"}, WARNING),
    "webhooks_disabled": (
        "Webhooks switched off by the platform",
        "webhooks.Subscription",
        {"trouble": "off"},
        WARNING,
    ),
    "certificates_pending": ("Certificates pending", "certificates.Certificate", {"broken": "pending"}, BUSY),
    "certificates_failed": ("Certificates failed or expired", "certificates.Certificate", {"broken": "1"}, BAD),
    "certificates_ending": ("Certificates not renewed", "certificates.Certificate", {"broken": "ending"}, WARNING),
    "sends": ("Push sends in flight", "notifications.Send", {"live": "1"}, BUSY),
    "sends_failed": ("Push sends that failed (a day)", "notifications.Send", {"live": "failed"}, WARNING),
    "files_processing": ("CDN files processing", "cdn.File", {"status__exact": "processing"}, BUSY),
    "files_rejected": ("CDN files rejected (a day)", "cdn.File", {"status__exact": "rejected"}, QUIET),
    "deploys_live": ("Page deploys in flight", "pages.PageDeploy", {"live": "1"}, BUSY),
}


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that leads to the list behind it."""

    label: str
    number: int
    url: str
    kind: str = QUIET
    since: SafeString | str = ""


def page_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the start page, for UNFOLD["DASHBOARD_CALLBACK"]."""
    allowed = request.user.has_perm
    backlogs = figures.backlogs(allowed)
    return {
        **context,
        "tiles": [*_workspace_tiles(allowed), *_operation_tiles(backlogs)],
        "panels": list(_panels(allowed, backlogs)),
    }


def _workspace_tiles(allowed: Allowed) -> Iterator[Tile]:
    if not allowed("workspaces.view_workspace"):
        return
    counts = STATUS_COUNTS.get()
    yield Tile("workspaces", sum(counts.values()), list_url(WORKSPACES))
    kinds = {Status.RUNNING: GOOD, Status.FAILED: BAD, Status.LOST: BAD, Status.PAUSED: WARNING}
    for status in AT_REST:
        number = counts.get(status, 0)
        url = list_url(WORKSPACES, status__exact=status.value)
        yield Tile(status.value, number, url, kinds.get(status, QUIET) if number else QUIET)


def _operation_tiles(backlogs: dict[str, Backlog]) -> Iterator[Tile]:
    for name, label, kind in OPERATION_TILES:
        found = backlogs.get(f"operations_{name}")
        if found is not None:
            since = time_text(found.since) if name == "live" and found.since else ""
            yield Tile(label, found.count, list_url(OPERATIONS, attention=name), kind if found.count else QUIET, since)


def _panels(allowed: Allowed, backlogs: dict[str, Backlog]) -> Iterator[Panel]:
    summaries = figures.summaries() if allowed("workspaces.view_workspace") or allowed("credits.view_balance") else []
    if allowed("workspaces.view_workspace"):
        yield _trend(summaries)
    if any(name in HEALTH for name in backlogs):
        yield _health(backlogs)
    if allowed("vmbackend.view_host"):
        yield _hosts(figures.HOSTS.get())
    if allowed("workspaces.view_operation"):
        yield _live(figures.live_operations())
        yield _noticeable(figures.noticeable_operations())
    details = cast("Details | None", summaries[-1].details if summaries else None)
    if details is not None and allowed("credits.view_balance"):
        yield _spending(details)
        yield _payers(details)
        yield _pools(details, summaries[-1])


def _trend(summaries: Sequence[HourlySummary]) -> Panel:
    """Return up to 84 points of the last days."""
    step = max(1, len(summaries) // 84)
    chosen = list(reversed(list(reversed(summaries))[::step]))
    labels = [f"{row.hour:%d %b %H:00}" for row in chosen]
    series = [(status.value, [float(row.counts.get(status, 0)) for row in chosen]) for status in TREND]
    series.insert(0, ("all", [float(sum(row.counts.values())) for row in chosen]))
    note = f"Counted {time_or_never(summaries)}; hours are UTC."
    chart = Chart("trend", labels, series) if chosen else None
    more = list_url(WORKSPACES)
    return Panel("Workspaces, last seven days", chart=chart, note=note, more=more, empty="Not counted yet.")


def time_or_never(summaries: Sequence[HourlySummary]) -> str:
    return f"at {summaries[-1].taken_at:%H:%M:%S}" if summaries else "never"


def _hosts(hosts: Sequence[Host]) -> Panel:
    rows = [_host_row(host) for host in hosts]
    headers = ("Host", "State", "Memory for machines", "Disk free", "Load, CPUs", "Heartbeat", "Version")
    return Panel("Hosts", headers=headers, rows=rows, more=list_url("vmbackend.Host"), empty="No host yet.", wide=True)


def _host_row(host: Host) -> tuple[object, ...]:
    """Every number leads to the host's page, which has its machines."""
    page = change_url("vmbackend.Host", host.pk)
    free = mebibytes_text(max(0, uncommitted_memory(host)))
    return (
        link(host.name, page),
        host_badge(host),
        link(f"{free} of {mebibytes_text(host.memory_mb)}", page),
        link(f"{mebibytes_text(host.disk_free_mb)} of {mebibytes_text(host.disk_mb)}", page),
        "-" if host.load is None else link(f"{host.load:.2f} on {host.cpus}", page),
        time_text(host.last_seen_at),
        host.version or "-",
    )


def _live(operations: Sequence[Operation]) -> Panel:
    rows = [
        (
            row_link(row, row.kind),
            row_link(row.workspace, row.workspace.name),
            badge(row.state),
            row.step or "-",
            row.attempt,
            taken(row.created_at, None),
            time_text(row.deadline_at),
        )
        for row in operations
    ]
    headers = ("Operation", "Workspace", "State", "Step", "Try", "For", "Deadline")
    more = list_url(OPERATIONS, attention="live")
    return Panel("Operations in flight, oldest first", headers=headers, rows=rows, more=more, empty="None.")


def _noticeable(operations: Sequence[Operation]) -> Panel:
    rows = [
        (
            row_link(row, row.kind),
            row_link(row.workspace, row.workspace.name),
            badge(row.state) if row.state == "failed" else badge("slow", WARNING),
            shortened(row.error_message or f"It took {taken(row.created_at, row.finished_at)}.", 90),
            time_text(row.finished_at),
        )
        for row in operations
    ]
    headers = ("Operation", "Workspace", "Outcome", "Why", "Ended")
    more = list_url(OPERATIONS, attention="failed")
    return Panel("Failed and slow in the last day", headers=headers, rows=rows, more=more, empty="None.")


def _spending(details: Details) -> Panel:
    chart = Chart("spending", details["days"], list(details["spending"].items()), "bar")
    more, note = list_url("credits.Entry"), "By service and UTC day."
    title = "Credits charged, last 14 days"
    return Panel(
        title, chart=chart if details["spending"] else None, more=more, empty="Nothing was charged.", note=note
    )


def _payers(details: Details) -> Panel:
    most = max((amount for _, _, amount in details["payers"]), default=0) or 1
    bars = [
        Bar(slug, f"{amount:,.2f}", share=amount / most * 0.79, url=list_url("credits.Balance", by_namespace_id=key))
        for key, slug, amount in details["payers"]
    ]
    by_id = details.get("payer_days", {})  # not yet in a summary of the version before
    series = [(slug, by_id[key]) for key, slug, _ in details["payers"] if key in by_id]
    chart = Chart("payers", details["days"], series, "bar") if series else None
    more = list_url("credits.Balance")
    return Panel("Credits by namespace, last 14 days", bars=bars, chart=chart, more=more, empty="Nothing was charged.")


def _pools(details: Details, newest: HourlySummary) -> Panel:
    bars = [
        Bar(f"{pool['owner']}: {pool['what']}", pool["used"], pool["limit"], pool["share"], change_url(*pool["of"]))
        for pool in details["pools"]
    ]
    note = f"From 80 % on; counted at {newest.taken_at:%H:%M:%S} UTC."
    more = list_url("credits.Balance", quota="near")
    return Panel("Pools close to their limits", bars=bars, note=note, more=more, empty="None is used to 80 %.")


def _health(backlogs: dict[str, Backlog]) -> Panel:
    rows = []
    for name, (label, model, filters, kind) in HEALTH.items():
        found = backlogs.get(name)
        if found is not None:
            url = list_url(model, **filters)
            number = badge(str(found.count), kind if found.count else GOOD)
            rows.append((link(label, url), link(number, url), time_text(found.since) if found.count else "-"))
    return Panel("Webhooks, certificates, push, CDN, pages", headers=("What", "Rows", "Since"), rows=rows)
