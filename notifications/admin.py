"""Staff: send tokens and devices, without what is secret of them, sends, and the audit log."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q

from accounts.audit_admin import AccountEventAdmin
from notifications import devices, tokens
from notifications.models import Device, NotificationEvent, Send, SendToken, TokenStatus
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import id_column, link_column, state_column, time_column
from staff.parts.lists import AgeFilter, ConditionFilter, IdFilter


def _revoke(act: Act) -> None:
    tokens.token_revoke(token=act.row, actor=act.actor, origin=act.origin)


def _delete_token(act: Act) -> None:
    tokens.token_delete(token=act.row, actor=act.actor, origin=act.origin)


def _delete_device(act: Act) -> None:
    devices.device_delete(device=act.row, actor=act.actor, origin=act.origin)


@admin.register(SendToken)
class SendTokenAdmin(StaffActionsMixin, ReadOnlyAdmin):
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
    staff_actions = (
        StaffAction(
            name="revoke", label="Revoke", call=_revoke, icon="key_off", harms=True,
            allowed=lambda row: row.status == TokenStatus.ACTIVE,
            will="Sends with the token are refused from now on. This cannot be undone.",
        ),
        StaffAction(
            name="remove", label="Delete", call=_delete_token, icon="delete", harms=True, permission="delete",
            will="The token is deleted: sends with it are refused from now on. Its audit entries stay.",
        ),
    )  # fmt: skip


@admin.register(Device)
class DeviceAdmin(StaffActionsMixin, ReadOnlyAdmin):
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

    staff_actions = (
        StaffAction(
            name="remove", label="Delete", call=_delete_device, icon="delete", harms=True, permission="delete",
            will="Nothing more is sent to the device, until it registers again.",
        ),
    )  # fmt: skip


class LiveFilter(ConditionFilter):
    title = "progress"
    parameter_name = "live"
    conditions = {
        "1": ("In flight", lambda: Q(state__in=("queued", "running"))),
        "failed": ("A device did not get it", lambda: Q(failed__gt=0)),
    }


@admin.register(Send)
class SendAdmin(ReadOnlyAdmin):
    """The sends of a day, without their content."""

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
class NotificationEventAdmin(AccountEventAdmin):
    """Audit entries of send tokens and devices."""
