"""Staff: send tokens and devices, without what is secret of them, sends, and the audit log."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label
from common.admin_columns import id_column, link_column, state_column, text_column, time_column
from common.admin_lists import AgeFilter, ConditionFilter, IdFilter
from notifications import devices, tokens
from notifications.models import Device, NotificationEvent, Send, SendToken


class RemovableAdmin(ServiceModelAdmin):
    """Shown and deleted; nothing is added or changed by a form."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(SendToken)
class SendTokenAdmin(RemovableAdmin):
    list_display = (
        "token_prefix", "name", link_column("account", text="name"), id_column("workspace_id", "workspaces.Workspace"),
        state_column("status"), time_column("last_used_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = ("status", ("account", IdFilter), ("workspace", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account",)
    search_fields = ("name", "=token_prefix", "account__name")
    search_ids = ("account__id", "workspace__id")
    keyset = ("-id",)
    # Metadata is the owner's, and may hold what staff need not know.
    exclude = ("metadata", "token_hash")
    raw_id_fields = ("workspace",)
    actions = ("revoke",)

    def delete_by_service(self, request: HttpRequest, obj: SendToken) -> None:
        tokens.token_delete(token=obj, actor=staff_label(request))

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, rows: QuerySet[SendToken]) -> None:
        actor = staff_label(request)
        call_for_each(request, rows, lambda row: tokens.token_revoke(token=row, actor=actor))

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("notifications.change_sendtoken")


@admin.register(Device)
class DeviceAdmin(RemovableAdmin):
    list_display = (
        "device_id", link_column("account", text="name"), "platform", "provider", time_column("created_at"),
        time_column("updated_at"),
    )  # fmt: skip
    list_filter = ("platform", "provider", ("account", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account",)
    search_fields = ("=device_id", "account__name")
    search_ids = ("account__id",)
    keyset = ("-id",)
    exclude = ("address", "address_hash")

    def delete_by_service(self, request: HttpRequest, obj: Device) -> None:
        devices.device_delete(device=obj, actor=staff_label(request))


class LiveFilter(ConditionFilter):
    title = "progress"
    parameter_name = "live"
    conditions = {"1": ("In flight", lambda: Q(state__in=("queued", "running")))}


@admin.register(Send)
class SendAdmin(ReadOnlyAdmin):
    """For a day. Never what was sent."""

    list_display = (
        "id", id_column("account_id", "accounts.Account"), id_column("workspace_id", "workspaces.Workspace"),
        state_column("state"), "devices", "delivered", "failed", time_column("created_at"),
    )  # fmt: skip
    list_filter = (LiveFilter, "state", ("account_id", IdFilter), ("workspace_id", IdFilter), ("created_at", AgeFilter))
    search_fields = ("=id",)
    search_ids = ("id", "account_id", "workspace_id")
    exclude = ("content", "claim")
    keyset = ("-id",)


@admin.register(NotificationEvent)
class NotificationEventAdmin(ReadOnlyAdmin):
    list_display = (
        time_column("created_at", "When"), "subject", "action", text_column("actor"), text_column("detail", length=80),
        "ip_address",
    )  # fmt: skip
    list_filter = (("action", IdFilter), ("subject", IdFilter), ("account", IdFilter), ("created_at", AgeFilter))
    search_fields = ("=subject", "=actor")
    search_ids = ("account__id", "subject")
    keyset = ("-id",)
