"""The list of hosts in the admin: state, room, load, and how many machines are on each."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from staff.parts.columns import BAD, GOOD, WARNING, badge, link, list_url, mebibytes_text, time_column
from vmbackend.models import Host


def host_badge(host: Host) -> SafeString:
    """Return a badge that says whether the host answers and takes new machines."""
    if not host.is_alive:
        return badge("offline", BAD, host.problem or "its vmhost does not report")
    return badge("online", GOOD) if host.accepts_new else badge("takes no new machines", WARNING)


class HostColumns:
    """Columns for the admin class of hosts; before the base class."""

    list_display = (
        "name", "state", "machines", "cpus", "load", "memory", "disk",
        time_column("last_seen_at", "Heartbeat"), "version",
    )  # fmt: skip
    list_filter = ("accepts_new", "accelerated")
    search_fields = ("name",)

    @admin.display(description="State")
    def state(self, host: Host) -> SafeString:
        return host_badge(host)

    @admin.display(description="Machines")
    def machines(self, host: Host) -> str:
        """Return a link to the host's machines, without their number, for which all of them would be read."""
        return link("its machines", list_url("workspaces.Workspace", by_host=host.pk))

    @admin.display(description="Memory free", ordering="memory_free_mb")
    def memory(self, host: Host) -> str:
        return f"{mebibytes_text(host.memory_free_mb)} of {mebibytes_text(host.memory_mb)}"

    @admin.display(description="Disk free", ordering="disk_free_mb")
    def disk(self, host: Host) -> str:
        return f"{mebibytes_text(host.disk_free_mb)} of {mebibytes_text(host.disk_mb)}"
