"""Staff: send tokens and devices, without what is secret of them, sends, and the audit log."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label
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
    list_display = ("id", "name", "account", "workspace_id", "token_prefix", "status", "last_used_at", "created_at")
    list_filter = ("status",)
    list_select_related = ("account",)
    search_fields = ("name", "token_prefix", "account__name", "account__id", "=workspace__id")
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
    list_display = ("device_id", "account", "platform", "provider", "created_at", "updated_at")
    list_filter = ("platform", "provider")
    list_select_related = ("account",)
    search_fields = ("device_id", "account__name", "account__id")
    exclude = ("address", "address_hash")

    def delete_by_service(self, request: HttpRequest, obj: Device) -> None:
        devices.device_delete(device=obj, actor=staff_label(request))


@admin.register(Send)
class SendAdmin(ReadOnlyAdmin):
    """For a day. Never what was sent."""

    list_display = ("created_at", "id", "account_id", "workspace_id", "state", "devices", "delivered", "failed")
    list_filter = ("state",)
    search_fields = ("=id", "=account_id", "=workspace_id")
    exclude = ("content", "claim")
    show_full_result_count = False


@admin.register(NotificationEvent)
class NotificationEventAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "subject", "action", "actor", "detail", "ip_address")
    list_filter = ("action",)
    search_fields = ("subject", "actor", "account__id")
