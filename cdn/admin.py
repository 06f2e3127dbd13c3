"""Staff: files, limits, counters and audit entries of the CDN."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from cdn.models import File, FileEvent, NamespaceQuota, Permit, PlanLimits, Pool, Template
from cdn.services import files, limits
from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label


@admin.register(PlanLimits)
class PlanLimitsAdmin(ServiceModelAdmin):
    """The ceilings. `policy`: see docs/operations.md, CDN."""

    list_display = ("plan", "max_bytes", "monthly_bytes", "policy")
    list_select_related = ("plan",)

    def get_readonly_fields(self, request: HttpRequest, obj: PlanLimits | None = None) -> tuple[str, ...]:
        return ("plan",) if obj else ()

    def save_by_service(self, request: HttpRequest, obj: PlanLimits, *, change: bool) -> None:
        limits.plan_limits_save(obj)

    def delete_by_service(self, request: HttpRequest, obj: PlanLimits) -> None:
        limits.plan_limits_delete(obj)


@admin.register(File)
class FileAdmin(ServiceModelAdmin):
    list_display = ("id", "filename", "account", "namespace", "status", "kind", "size", "footprint", "created_at")
    list_filter = ("status", "kind")
    list_select_related = ("account", "namespace")
    search_fields = ("id", "filename", "account__id")
    readonly_fields = tuple(field.name for field in File._meta.concrete_fields)
    actions = ("trash", "restore")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def save_by_service(self, request: HttpRequest, obj: File, *, change: bool) -> None:
        """Nothing of a file can be edited; actions change it."""

    def delete_by_service(self, request: HttpRequest, obj: File) -> None:
        """With its bytes, by way of the trash."""
        actor = staff_label(request)
        files.file_trash(file=obj, actor=actor)
        files.trash_purge(account=obj.account, within=Q(pk=obj.pk), actor=actor)

    @admin.action(description="Move to the trash")
    def trash(self, request: HttpRequest, rows: QuerySet[File]) -> None:
        actor = staff_label(request)
        call_for_each(request, rows, lambda row: files.file_trash(file=row, actor=actor))

    @admin.action(description="Restore from the trash")
    def restore(self, request: HttpRequest, rows: QuerySet[File]) -> None:
        actor = staff_label(request)
        call_for_each(request, rows, lambda row: files.file_restore(file=row, actor=actor))


@admin.register(Template)
class TemplateAdmin(ReadOnlyAdmin):
    list_display = ("account", "cdn_max_bytes", "cdn_monthly_bytes", "policy")
    list_select_related = ("account",)
    search_fields = ("account__id", "account__name")


@admin.register(NamespaceQuota)
class NamespaceQuotaAdmin(ReadOnlyAdmin):
    list_display = ("namespace", "cdn_max_bytes", "cdn_monthly_bytes", "policy")
    list_select_related = ("namespace",)
    search_fields = ("namespace__slug", "namespace__account__id")


@admin.register(Pool)
class PoolAdmin(ReadOnlyAdmin):
    list_display = (
        "owner",
        "kind",
        "account",
        "stored_bytes",
        "trashed_bytes",
        "reserved_bytes",
        "month",
        "month_bytes",
    )
    list_filter = ("kind",)
    list_select_related = ("account",)
    search_fields = ("owner", "account__id")


@admin.register(Permit)
class PermitAdmin(ReadOnlyAdmin):
    list_display = ("file", "state", "size", "reserved_bytes", "received_bytes", "created_at", "expires_at")
    list_filter = ("state",)
    list_select_related = ("file",)
    search_fields = ("file__id", "file__account__id")
    exclude = ("token_hash",)


@admin.register(FileEvent)
class FileEventAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "account", "file_id", "action", "actor", "ip_address", "detail")
    list_select_related = ("account",)
    search_fields = ("file_id", "account__id", "actor")
