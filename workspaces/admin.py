"""Staff: workspaces, their operations and their activity. What staff do is in `staff_actions`."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin
from staff.action_admin import StaffActionsMixin
from staff.subjects import Subject
from workspaces.images.admin import CatalogEntryAdmin
from workspaces.models import Activity, BillingCycle, MeterRecord, Operation, PublicPort, Usage, Workspace
from workspaces.staff_actions import ACTIONS

__all__ = ["ActivityAdmin", "CatalogEntryAdmin", "OperationAdmin", "WorkspaceAdmin"]


@admin.register(Workspace)
class WorkspaceAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("id", "name", "account", "namespace", "status", "ready", "image", "host", "created_at")
    list_filter = ("status", "mode", "kind", "host")
    list_select_related = ("account", "namespace", "host")
    search_fields = ("id", "name", "slug", "account__name", "account__id")
    exclude = ("env", "workloads")  # secrets of the owner
    staff_actions = ACTIONS

    def staff_rows(self, request: HttpRequest) -> QuerySet[Workspace]:
        return self.get_queryset(request).select_related("account__plan", "host", "namespace")

    def staff_subject(self, row: Workspace) -> Subject:
        return Subject(row.account_id, row.namespace_id, row.pk)


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
