"""Staff: webhooks, without what is secret of them, and what was sent. A webhook may be switched off and on."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, call_for_each, staff_label
from webhooks import subscriptions
from webhooks.models import Attempt, AuditEntry, Delivery, Event, Subscription


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin):
    list_display = ("id", "account", "namespace_slug", "host", "active", "disabled_reason", "last_status_code")
    list_filter = ("active", "disabled_reason")
    list_select_related = ("account",)
    search_fields = ("id", "host", "namespace_slug", "account__name", "account__id")
    # The URL may carry a token.
    exclude = ("url", "secret", "former_secret")
    actions = ("switch_off", "switch_on")

    @admin.action(description="Switch off", permissions=["switch"])
    def switch_off(self, request: HttpRequest, rows: QuerySet[Subscription]) -> None:
        self._switch(request, rows, active=False)

    @admin.action(description="Switch on", permissions=["switch"])
    def switch_on(self, request: HttpRequest, rows: QuerySet[Subscription]) -> None:
        self._switch(request, rows, active=True)

    def has_switch_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("webhooks.change_subscription")

    def _switch(self, request: HttpRequest, rows: QuerySet[Subscription], *, active: bool) -> None:
        actor = staff_label(request)
        call_for_each(
            request,
            rows,
            lambda row: subscriptions.subscription_update(subscription=row, changes={"active": active}, actor=actor),
        )


class OutboxAdmin(ReadOnlyAdmin):
    """Tables that grow with the events: without a count of all rows."""

    show_full_result_count = False


@admin.register(Event)
class EventAdmin(OutboxAdmin):
    list_display = ("created_at", "id", "type", "account_id", "namespace_slug")
    list_filter = ("type",)
    search_fields = ("=id", "=account__id")


@admin.register(Delivery)
class DeliveryAdmin(OutboxAdmin):
    list_display = ("id", "subscription", "event_id", "status", "attempts", "next_attempt_at", "last_status_code")
    list_filter = ("status",)
    list_select_related = ("subscription",)
    search_fields = ("=id", "=subscription__id", "=event__id")


@admin.register(Attempt)
class AttemptAdmin(OutboxAdmin):
    list_display = ("started_at", "delivery_id", "number", "duration_ms", "status_code", "error")
    search_fields = ("=delivery__id", "=subscription__id")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "subscription_id", "action", "actor", "ip_address", "description")
    list_filter = ("action",)
    search_fields = ("subscription_id", "actor", "account__id")
