"""Staff: webhooks, without what is secret of them, and what was sent. A webhook may be switched off and on."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
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


@admin.register(Subscription)
class SubscriptionAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("id", "account", "namespace_slug", "host", "active", "disabled_reason", "last_status_code")
    list_filter = ("active", "disabled_reason")
    list_select_related = ("account",)
    search_fields = ("id", "host", "namespace_slug", "account__name", "account__id")
    # The URL may carry a token.
    exclude = ("url", "secret", "former_secret")
    staff_actions = (
        StaffAction(
            name="switch_off", label="Switch off", call=_switch_off, icon="toggle_off", harms=True,
            allowed=lambda row: row.active,
            will="Nothing more is sent to the webhook; what is pending is not sent.",
        ),
        StaffAction(
            name="switch_on", label="Switch on", call=_switch_on, icon="toggle_on", allowed=lambda row: not row.active,
            will="Events from now on are sent to the webhook again.",
        ),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Subscription]:
        return super().get_queryset(request).defer("secret", "former_secret")


class OutboxAdmin(ReadOnlyAdmin):
    """Tables that grow with the events: without a count of all rows."""

    show_full_result_count = False


@admin.register(Event)
class EventAdmin(OutboxAdmin):
    list_display = ("created_at", "id", "type", "account_id", "namespace_slug")
    list_filter = ("type",)
    search_fields = ("=id", "=account__id")


@admin.register(Delivery)
class DeliveryAdmin(StaffActionsMixin, OutboxAdmin):
    list_display = ("id", "subscription", "event_id", "status", "attempts", "next_attempt_at", "last_status_code")
    list_filter = ("status",)
    list_select_related = ("subscription",)
    search_fields = ("=id", "=subscription__id", "=event__id")
    staff_actions = (
        StaffAction(
            name="redeliver", label="Deliver again", icon="send", call=lambda act: delivery_redeliver(act.row),
            allowed=lambda row: row.status != DeliveryStatus.PENDING,
            will="The same event, with the same id, is sent again now, with all its attempts ahead of it.",
        ),
    )  # fmt: skip

    def staff_subject(self, row: Delivery) -> Subject:
        return Subject.of(row.subscription)


@admin.register(Attempt)
class AttemptAdmin(OutboxAdmin):
    list_display = ("started_at", "delivery_id", "number", "duration_ms", "status_code", "error")
    search_fields = ("=delivery__id", "=subscription__id")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "subscription_id", "action", "actor", "ip_address", "description")
    list_filter = ("action",)
    search_fields = ("subscription_id", "actor", "account__id")
