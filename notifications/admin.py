"""Staff: send tokens and devices, without what is secret of them, sends, and the audit log."""

from __future__ import annotations

from django.contrib import admin

from common.admin import ReadOnlyAdmin
from notifications import devices, tokens
from notifications.models import Device, NotificationEvent, Send, SendToken, TokenStatus
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction


def _revoke(act: Act) -> None:
    tokens.token_revoke(token=act.row, actor=act.actor, origin=act.origin)


def _delete_token(act: Act) -> None:
    tokens.token_delete(token=act.row, actor=act.actor, origin=act.origin)


def _delete_device(act: Act) -> None:
    devices.device_delete(device=act.row, actor=act.actor, origin=act.origin)


@admin.register(SendToken)
class SendTokenAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("id", "name", "account", "workspace_id", "token_prefix", "status", "last_used_at", "created_at")
    list_filter = ("status",)
    list_select_related = ("account",)
    search_fields = ("name", "token_prefix", "account__name", "account__id", "=workspace__id")
    # Metadata is the owner's, and may hold what staff need not know.
    exclude = ("metadata", "token_hash")
    raw_id_fields = ("workspace",)
    staff_actions = (
        StaffAction(
            name="revoke", label="Revoke", call=_revoke, icon="key_off", harms=True,
            allowed=lambda row: row.status == TokenStatus.ACTIVE,
            will="Sends with the token are refused from now on. It cannot be undone.",
        ),
        StaffAction(
            name="remove", label="Delete", call=_delete_token, icon="delete", harms=True, permission="delete",
            will="The token is deleted: sends with it are refused from now on. Its audit entries stay.",
        ),
    )  # fmt: skip


@admin.register(Device)
class DeviceAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("device_id", "account", "platform", "provider", "created_at", "updated_at")
    list_filter = ("platform", "provider")
    list_select_related = ("account",)
    search_fields = ("device_id", "account__name", "account__id")
    exclude = ("address", "address_hash")

    staff_actions = (
        StaffAction(
            name="remove", label="Delete", call=_delete_device, icon="delete", harms=True, permission="delete",
            will="Nothing more is sent to the device, until it registers again.",
        ),
    )  # fmt: skip


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
