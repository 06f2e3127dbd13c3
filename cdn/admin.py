"""Staff: files, limits, counters and audit entries of the CDN."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest

from cdn.models import File, FileEvent, NamespaceQuota, Permit, PlanLimits, Pool, Template
from cdn.services import files, limits
from cdn.states import FileStatus
from common.admin import ReadOnlyAdmin, ServiceModelAdmin
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction


def _trash(act: Act) -> None:
    files.file_trash(file=act.row, actor=act.actor, origin=act.origin)


def _restore(act: Act) -> None:
    files.file_restore(file=act.row, actor=act.actor, origin=act.origin)


def _purge(act: Act) -> None:
    _trash(act)
    files.trash_purge(account=act.row.account, within=Q(pk=act.row.pk), actor=act.actor, origin=act.origin)


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
class FileAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("id", "filename", "account", "namespace", "status", "kind", "size", "footprint", "created_at")
    list_filter = ("status", "kind")
    list_select_related = ("account", "namespace")
    search_fields = ("id", "filename", "account__id")
    staff_actions = (
        StaffAction(
            name="trash", label="Move to the trash", call=_trash, icon="delete", harms=True,
            allowed=lambda row: row.status not in (FileStatus.TRASHED, FileStatus.REJECTED),
            will="The file is not delivered from the next request on. It can be restored.",
        ),
        StaffAction(
            name="restore", label="Restore from the trash", call=_restore, icon="restore_from_trash",
            allowed=lambda row: row.status == FileStatus.TRASHED,
            will="The file is delivered again.",
        ),
        StaffAction(
            name="purge", label="Delete with its bytes", call=_purge, icon="delete_forever", harms=True,
            permission="delete", is_atomic=False, allowed=lambda row: row.status != FileStatus.REJECTED,
            will="The file and its bytes are deleted, by way of the trash. It cannot be undone.",
        ),
    )  # fmt: skip


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
