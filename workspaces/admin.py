"""Staff: workspaces, their operations and their activity. Actions call the services."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, call_for_each, staff_label
from workspaces.crud.services import workspace_delete
from workspaces.images.admin import CatalogEntryAdmin
from workspaces.lifecycle.services import workspace_destroy
from workspaces.models import Activity, BillingCycle, MeterRecord, Operation, PublicPort, Usage, Workspace
from workspaces.power.services import (
    workspace_pause,
    workspace_restart,
    workspace_resume,
    workspace_sleep,
    workspace_start,
    workspace_stop,
)

__all__ = ["ActivityAdmin", "CatalogEntryAdmin", "OperationAdmin", "WorkspaceAdmin"]


@admin.register(Workspace)
class WorkspaceAdmin(ReadOnlyAdmin):
    list_display = ("id", "name", "account", "namespace", "status", "ready", "image", "host", "created_at")
    list_filter = ("status", "mode", "kind", "host")
    list_select_related = ("account", "namespace", "host")
    search_fields = ("id", "name", "slug", "account__name", "account__id")
    exclude = ("env", "workloads")  # secrets of the owner
    actions = ("start", "stop", "restart", "pause", "resume", "put_to_sleep", "destroy_machine", "remove")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and super(ReadOnlyAdmin, self).has_change_permission(request, obj)

    @admin.action(description="Start")
    def start(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_start)

    @admin.action(description="Stop")
    def stop(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_stop)

    @admin.action(description="Restart")
    def restart(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_restart)

    @admin.action(description="Pause")
    def pause(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_pause)

    @admin.action(description="Resume or wake")
    def resume(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_resume)

    @admin.action(description="Sleep (save memory to disk)")
    def put_to_sleep(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_sleep)

    @admin.action(description="Destroy the virtual machine, keep the record")
    def destroy_machine(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_destroy)

    @admin.action(description="Delete with all data")
    def remove(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        self._each(request, rows, workspace_delete)

    def _each(self, request: HttpRequest, rows: QuerySet[Workspace], service: Any) -> None:
        rows = rows.select_related("account__plan", "host", "namespace")
        call_for_each(request, rows, lambda row: service(workspace=row, actor=staff_label(request)))


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "id",
        "kind",
        "workspace",
        "state",
        "step",
        "attempt",
        "actor",
        "created_at",
        "finished_at",
    )
    list_filter = ("state", "kind", "queue")
    list_select_related = ("workspace",)
    search_fields = ("id", "workspace__id", "workspace__name")


@admin.register(PublicPort)
class PublicPortAdmin(ReadOnlyAdmin):
    list_display = ("workspace", "port", "hash", "slug", "label", "created_at")
    list_select_related = ("workspace",)
    search_fields = ("workspace__id", "workspace__name", "hash", "slug")


@admin.register(Activity)
class ActivityAdmin(ReadOnlyAdmin):
    list_display = ("at", "workspace_id", "event", "actor", "detail")
    list_filter = ("event",)
    search_fields = ("workspace_id", "actor")


@admin.register(Usage)
class UsageAdmin(ReadOnlyAdmin):
    list_display = ("workspace_id", "tracking", "total_cpu_time_ns", "total_disk_read", "total_disk_write",
                    "total_net_rx", "total_net_tx")  # fmt: skip
    list_filter = ("tracking",)
    search_fields = ("workspace__id", "workspace__name")


@admin.register(MeterRecord)
class MeterRecordAdmin(ReadOnlyAdmin):
    list_display = ("tick_id", "metered", "period_ms", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes")
    list_select_related = ("metered",)
    search_fields = ("metered__workspace_id", "metered__namespace_id", "metered__account_id")
    show_full_result_count = False


@admin.register(BillingCycle)
class BillingCycleAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "seconds", "workspaces", "credits", "closed_at")

    @admin.display(description="Seconds")
    def seconds(self, obj: BillingCycle) -> int:
        return obj.end - obj.start
