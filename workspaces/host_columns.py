"""The list of hosts in the admin: state, room, load, and how many machines are on each."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from staff.parts.columns import (
    BAD,
    EMPTY,
    GOOD,
    WARNING,
    badge,
    bytes_text,
    duration_text,
    link,
    list_url,
    mebibytes_text,
    time_column,
)
from vmbackend.host_states import UNREACHABLE, HostState
from vmbackend.models import Host

_AWAY = {UNREACHABLE: "its vmhost does not report", HostState.GONE: "it was given up"}


def host_badge(host: Host) -> SafeString:
    """Return a badge that says whether the host answers and takes new machines."""
    if not host.is_reachable:
        return badge(host.shown_state, BAD, _AWAY[host.shown_state])
    if host.problem:
        return badge("offline", BAD, host.problem)
    return badge(host.state, GOOD if host.takes_new else WARNING)


def template_text(template: dict[str, Any]) -> str:
    """Return what staff read of a boot template. `template`: the values of a `vmbackend.driver.BootTemplate`."""
    size = f"{template['cpus']} CPUs and {mebibytes_text(template['memory_mb'])}"
    age = duration_text(max(0.0, time.time() - template["made_at"]))
    loads = f"loaded {template['loads']} times, {template['failures']} failed"
    return f"Machines of {size}: {bytes_text(template['size_bytes'])}, made {age} ago, {loads}"


def pool_text(share: dict[str, Any]) -> str:
    """Return what staff read of a part of the warm pool. `share`: the values of a `PoolShare`."""
    size = f"{share['cpu_millis'] / 1000:g} CPUs, {mebibytes_text(share['memory_mb'])}"
    machines = f"{share['wanted']} wanted, {share['ready']} ready"
    return f"{share['image']}, {size}: {machines}; in ten minutes {share['claimed']} claimed, {share['missed']} missed"


def orphan_text(orphan: dict[str, Any]) -> str:
    """Return what staff read of a kept orphan. `orphan`: the values of a `vmbackend.orphans.KeptOrphan`."""
    age = duration_text(max(0.0, time.time() - orphan["kept_since"]))
    return f"{orphan['name']}: {bytes_text(orphan['size_bytes'])}, kept for {age}"


class HostColumns:
    """Columns for the admin class of hosts; before the base class."""

    list_display = (
        "name", "shown", "machines", "cpus", "load", "memory", "disk",
        time_column("last_seen_at", "Heartbeat"), "version",
    )  # fmt: skip
    list_filter = ("state", "accelerated")
    search_fields = ("name",)
    exclude = ("templates", "pool", "orphans", "capabilities", "labels", "images")
    readonly_fields = ("boot_templates", "warm_pool", "kept_orphans")

    @admin.display(description="State", ordering="state")
    def shown(self, host: Host) -> SafeString:
        return host_badge(host)

    @admin.display(description="Machines")
    def machines(self, host: Host) -> str:
        """Return a link to the host's machines, without their number, for which all of them would be read."""
        return link("its machines", list_url("workspaces.Workspace", by_host=host.pk))

    @admin.display(description="Memory free", ordering="memory_free_mb")
    def memory(self, host: Host) -> str:
        return f"{mebibytes_text(host.memory_free_mb)} of {mebibytes_text(host.memory_mb)}"

    @admin.display(description="Boot templates")
    def boot_templates(self, host: Host) -> str:
        """Return a line for each template from which machines start; empty if every start is a boot."""
        return format_html_join("", "{}<br>", ((template_text(each),) for each in host.templates)) or EMPTY

    @admin.display(description="Warm pool")
    def warm_pool(self, host: Host) -> str:
        """Return a line for each kind of machines that creates take ready; empty if there is no demand, or no pool."""
        return format_html_join("", "{}<br>", ((pool_text(each),) for each in host.pool)) or EMPTY

    @admin.display(description="Kept orphans")
    def kept_orphans(self, host: Host) -> str:
        """Return a line for each former copy of a workspace whose files the host keeps."""
        return format_html_join("", "{}<br>", ((orphan_text(each),) for each in host.orphans)) or EMPTY

    @admin.display(description="Disk free", ordering="disk_free_mb")
    def disk(self, host: Host) -> str:
        return f"{mebibytes_text(host.disk_free_mb)} of {mebibytes_text(host.disk_mb)}"
