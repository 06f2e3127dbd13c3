"""The admin of hosts, which write their rows themselves. Staff only decide which of them take new machines.

Here and not in vmbackend, which knows nothing of the admin's bases and of workspaces.
"""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from common.admin import ServiceModelAdmin
from common.admin_columns import BAD, GOOD, WARNING, badge, link, list_url, mebibytes_text, time_column
from vmbackend import services
from vmbackend.models import Host
from workspaces.states import HOLDS_PROCESS


def host_badge(host: Host) -> SafeString:
    """Whether it answers, and takes new machines."""
    if not host.is_alive:
        return badge("offline", BAD, host.problem or "its vmhost does not report")
    return badge("online", GOOD) if host.accepts_new else badge("takes no new machines", WARNING)


@admin.register(Host)
class HostAdmin(ServiceModelAdmin):
    list_display = (
        "name", "state", "machines", "running", "cpus", "load", "memory", "disk",
        time_column("last_seen_at", "Heartbeat"), "version",
    )  # fmt: skip
    list_filter = ("accepts_new", "accelerated")
    search_fields = ("name",)
    readonly_fields = tuple(field.name for field in Host._meta.fields if field.name != "accepts_new")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Host]:
        running = Count("workspaces", filter=Q(workspaces__status__in=HOLDS_PROCESS))
        return super().get_queryset(request).annotate(machine_count=Count("workspaces"), running_count=running)

    @admin.display(description="State")
    def state(self, host: Host) -> SafeString:
        return host_badge(host)

    @admin.display(description="Machines")
    def machines(self, host: Host) -> str:
        return link(getattr(host, "machine_count", ""), list_url("workspaces.Workspace", by_host=host.pk))

    @admin.display(description="Running")
    def running(self, host: Host) -> str:
        return str(getattr(host, "running_count", ""))

    @admin.display(description="Memory free", ordering="memory_free_mb")
    def memory(self, host: Host) -> str:
        return f"{mebibytes_text(host.memory_free_mb)} of {mebibytes_text(host.memory_mb)}"

    @admin.display(description="Disk free", ordering="disk_free_mb")
    def disk(self, host: Host) -> str:
        return f"{mebibytes_text(host.disk_free_mb)} of {mebibytes_text(host.disk_mb)}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # a host adds itself when its vmhost starts

    def save_by_service(self, request: HttpRequest, obj: Host, *, change: bool) -> None:
        services.host_update(name=obj.name, accepts_new=obj.accepts_new)

    def delete_by_service(self, request: HttpRequest, obj: Host) -> None:
        services.host_delete(name=obj.name)
