"""Staff: webhooks, without what is secret of them, and what was sent. A webhook may be switched off and on."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from accounts.audit_admin import AccountEventAdmin
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import badge, id_column, link_column, state_column, text_column, time_column
from staff.parts.lists import AgeFilter, ConditionFilter, IdFilter
from staff.subjects import Subject
from webhooks import subscriptions
from webhooks.models import Attempt, AuditEntry, Delivery, DeliveryStatus, Event, Subscription
from webhooks.redeliver import delivery_redeliver


def _switch(act: Act, active: bool) -> None:
    changes = {"active": active}
    subscriptions.subscription_update(subscription=act.row, changes=changes, actor=act.actor, origin=act.origin)


def _switch_off(act: Act) -> None:
    _switch(act, False)


def _switch_on(act: Act) -> None:
    _switch(act, True)


@admin.display(description="State", ordering="active")
def webhook_state(row: Subscription) -> SafeString:
    if row.deleted_at is not None:
        return badge("deleted", title=f"at {row.deleted_at:%Y-%m-%d %H:%M} UTC; its deliveries are being removed")
    if not row.active:
        return badge("disabled", title=row.get_disabled_reason_display() or "by hand")
    return badge("failing", title=f"since {row.failing_since:%Y-%m-%d %H:%M}") if row.failing_since else badge("active")


class TroubleFilter(ConditionFilter):
    """The filter for the conditions that the dashboard counts."""

    title = "trouble"
    parameter_name = "trouble"
    conditions = {
        "failing": ("Failing", lambda: Q(active=True, failing_since__isnull=False)),
        "off": ("Switched off by the platform", lambda: Q(disabled_reason__isnull=False, deleted_at=None)),
    }


@admin.register(Subscription)
class SubscriptionAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "id", link_column("account", text="name"), "namespace_slug", "host", webhook_state, "last_status_code",
        time_column("last_triggered_at"), time_column("failing_since"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (
        TroubleFilter, "active", "disabled_reason", ("account", IdFilter), ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("account",)
    search_fields = ("host", "namespace_slug", "account__name")
    search_ids = ("id", "account__id", "namespace_id")
    keyset = ("-id",)
    # The URL may carry a token.
    exclude = ("url", "secret", "former_secret")
    staff_actions = (
        StaffAction(
            name="switch_off", label="Switch off", call=_switch_off, icon="toggle_off", harms=True,
            allowed=lambda row: row.active and row.deleted_at is None,
            will="Nothing more is sent to the webhook, pending deliveries included.",
        ),
        StaffAction(
            name="switch_on", label="Switch on", call=_switch_on, icon="toggle_on", owner_reads=True,
            allowed=lambda row: not row.active and row.deleted_at is None,
            will="Events from now on are sent to the webhook again.",
        ),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Subscription]:
        return super().get_queryset(request).defer("secret", "former_secret")


class OutboxAdmin(ReadOnlyAdmin):
    """Tables that grow with the events."""

    keyset = ("-id",)


@admin.register(Event)
class EventAdmin(OutboxAdmin):
    list_display = (
        "id", "type", id_column("account_id", "accounts.Account"), "namespace_slug", time_column("created_at"),
    )  # fmt: skip
    list_filter = (("type", IdFilter), ("account", IdFilter), ("created_at", AgeFilter))
    # Events of an account may have content that staff need not know.
    exclude = ("data",)
    search_fields = ("=type",)
    search_ids = ("id", "account__id")


@admin.register(Delivery)
class DeliveryAdmin(StaffActionsMixin, OutboxAdmin):
    list_display = (
        "id", link_column("subscription"), id_column("event_id", "webhooks.Event"),
        state_column("status", reason="last_error"), "attempts", time_column("next_attempt_at"), "last_status_code",
        time_column("created_at"),
    )  # fmt: skip
    list_filter = ("status", ("subscription", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("subscription",)
    search_fields = ("=id",)
    search_ids = ("id", "subscription__id", "event__id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Delivery]:
        return super().get_queryset(request).defer(*(f"subscription__{name}" for name in SubscriptionAdmin.exclude))

    staff_actions = (
        StaffAction(
            name="redeliver", label="Deliver again", icon="send", call=lambda act: delivery_redeliver(act.row),
            allowed=lambda row: row.status != DeliveryStatus.PENDING, owner_reads=True,
            will="The same event, with the same id, is sent again now, with all attempts.",
        ),
    )  # fmt: skip

    def staff_subject(self, row: Delivery) -> Subject:
        return Subject.of(row.subscription)


@admin.register(Attempt)
class AttemptAdmin(OutboxAdmin):
    list_display = (
        "id", time_column("started_at", "When"), id_column("delivery_id", "webhooks.Delivery"), "number", "duration_ms",
        "status_code", text_column("error"),
    )  # fmt: skip
    list_filter = (("subscription", IdFilter), ("started_at", AgeFilter))
    search_fields = ("=delivery__id",)
    search_ids = ("delivery__id", "subscription__id")


@admin.register(AuditEntry)
class AuditEntryAdmin(AccountEventAdmin):
    subject_model = "webhooks.Subscription"
