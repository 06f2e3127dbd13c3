"""The page of a host: room, load, heartbeat, and what is on it."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count
from django.http import HttpRequest
from django.utils.safestring import SafeString

from console.panels.columns import OPERATIONS, STAFF, WORKSPACES
from staff.models import StaffEntry
from staff.parts.columns import badge, change_url, link, list_url, mebibytes_text, time_text
from staff.parts.pages import Bar, Panel, page, panel, table
from vmbackend.capabilities import FLAGS, Flag
from vmbackend.models import Host
from workspaces.host_columns import host_badge
from workspaces.models import Operation, Workspace

HOST = "vmbackend.Host"


def _badges(row: Host) -> list[SafeString]:
    return [host_badge(row), badge("KVM" if row.accelerated else "emulated"), badge(row.arch)]


page(HOST, "Overview", "Machines", "Operations", badges=_badges)


@panel(HOST, "Overview")
def overview_panels(request: HttpRequest, row: Host) -> Iterator[Panel]:
    facts = [
        ("Lease until", time_text(row.lease_until)),
        ("Last report", time_text(row.last_seen_at)),
        ("Problem", row.problem or "-"),
        ("State", f"{row.shown_state} since {row.shown_since:%Y-%m-%d %H:%M:%S}"),
        ("Takes new machines", "yes" if row.takes_new else "no"),
        ("Version", row.version or "-"),
        ("Machines", f"{row.machines_running} run, {row.machines_sleeping} sleep, {row.machines_stopped} are off"),
        ("Disk promised", mebibytes_text(row.disk_promised_mb)),
        ("Zone", row.zone or "-"),
        ("Labels", ", ".join(f"{name}={value}" for name, value in sorted(row.labels.items())) or "-"),
        ("Addresses", row.subnet),
        ("Reached by other hosts at", row.address or "-"),
        ("Machines can sleep", "yes" if row.snapshots else "no"),
        ("Known since", time_text(row.created_at)),
    ]
    yield Panel("Host", facts)
    yield Panel("Hypervisor", hypervisor_facts(row), note="Nothing uses what newer releases can do yet.")
    yield Panel("Room", bars=_bars(row), note="Memory is what running machines were promised, with overcommitment.")


def hypervisor_facts(row: Host) -> list[tuple[str, str]]:
    """Return versions and capabilities; one that the host has not reported is unknown."""
    known = row.capabilities
    versions = [(label, known.get(field) or "-") for label, field in _VERSIONS]
    flags = [(flag.name, _flag_text(known.get(flag.field), flag)) for flag in FLAGS]
    return [*versions, *flags]


_VERSIONS = (("QEMU", "qemu"), ("libvirt", "libvirt"), ("Accelerator", "accelerator"))


def _flag_text(value: bool | None, flag: Flag) -> str:
    if value is None:
        return "-"
    return f"yes: {flag.there}" if value else f"no: {flag.lacking}"


def _bars(row: Host) -> list[Bar]:
    total = max(1, int(row.memory_mb * settings.ENV.memory_overcommit) - settings.ENV.memory_reserve_mb)
    promised = row.memory_promised_mb
    disk = row.disk_mb - row.disk_free_mb
    bars = [
        Bar("Memory promised", mebibytes_text(promised), mebibytes_text(total), promised / total),
        Bar("Disk used or reserved", mebibytes_text(disk), mebibytes_text(row.disk_mb), disk / max(1, row.disk_mb)),
    ]
    if row.load is not None:
        bars.append(Bar("Load", f"{row.load:.2f}", f"{row.cpus} CPUs", row.load / max(1, row.cpus)))
    return bars


@panel(HOST, "Machines", "workspaces.view_workspace")
def machines_panels(request: HttpRequest, row: Host) -> Iterator[Panel]:
    counts = Workspace.objects.filter(host=row).order_by().values_list("status").annotate(count=Count("*"))
    facts = [
        (badge(status), link(count, list_url("workspaces.Workspace", by_host=row.pk, status__exact=status)))
        for status, count in sorted(counts)
    ]
    yield Panel("By status", facts, empty="No machine is on it.")
    found = Workspace.objects.filter(host=row).defer("env", "workloads").order_by("-id")
    yield table("Newest", found, WORKSPACES, more=list_url("workspaces.Workspace", by_host=row.pk))


@panel(HOST, "Operations", "workspaces.view_operation")
def operations_panel(request: HttpRequest, row: Host) -> Panel:
    live = Operation.objects.filter(finished_at=None, queue=row.queue).defer("params").order_by("created_at")
    columns = (("Workspace", lambda one: link(one.workspace_id, _page_of(one.workspace_id))), *OPERATIONS)
    more = list_url("workspaces.Operation", by_queue=row.queue, attention="live")
    return table("In flight, oldest first", live, columns, more=more)


def _page_of(workspace_id: str) -> str:
    return change_url("workspaces.Workspace", workspace_id)


@panel(HOST, "Operations", "staff.view_staffentry")
def staff_panel(request: HttpRequest, row: Host) -> Panel:
    found = StaffEntry.objects.filter(object_type="vmbackend.host", object_id=row.pk).order_by("-at", "-id")
    return table("Done by staff", found, STAFF, more=list_url("staff.StaffEntry", q=row.pk))
