"""Staff: webhooks, without what is secret of them, and what was sent. A webhook may be switched off and on."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, call_for_each, staff_label
from common.admin_columns import badge, id_column, link_column, state_column, text_column, time_column
from common.admin_lists import AgeFilter, IdFilter
from webhooks import subscriptions
from webhooks.models import Attempt, AuditEntry, Delivery, Event, Subscription


@admin.display(description="State", ordering="active")
def webhook_state(row: Subscription) -> str:
    if not row.active:
        return badge("disabled", title=row.get_disabled_reason_display() or "by hand")
    return badge("failing", title=f"since {row.failing_since:%Y-%m-%d %H:%M}") if row.failing_since else badge("active")


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin):
    list_display = (
        "id", link_column("account", text="name"), "namespace_slug", "host", webhook_state, "last_status_code",
        time_column("last_triggered_at"), time_column("failing_since"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (
        "active", "disabled_reason", ("failing_since", admin.EmptyFieldListFilter), ("account", IdFilter),
        ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("account",)
    search_fields = ("host", "namespace_slug", "account__name")
    search_ids = ("id", "account__id", "namespace_id")
    ordering = ("-id",)
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
    """Tables that grow with the events."""

    keyset = ("-id",)


@admin.register(Event)
class EventAdmin(OutboxAdmin):
    list_display = (
        "id", "type", id_column("account_id", "accounts.Account"), "namespace_slug", time_column("created_at"),
    )  # fmt: skip
    list_filter = (("type", IdFilter), ("account", IdFilter), ("created_at", AgeFilter))
    # What happened in an account may hold what staff need not know.
    exclude = ("data",)
    search_fields = ("=type",)
    search_ids = ("id", "account__id")


@admin.register(Delivery)
class DeliveryAdmin(OutboxAdmin):
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
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = (
        time_column("created_at", "When"), id_column("subscription_id", "webhooks.Subscription"), "action",
        text_column("actor"), "ip_address", text_column("description", length=80),
    )  # fmt: skip
    list_filter = (
        ("action", IdFilter), ("subscription_id", IdFilter), ("account", IdFilter), ("created_at", AgeFilter),
    )  # fmt: skip
    search_fields = ("=actor", "=action")
    search_ids = ("subscription_id", "account__id")
    keyset = ("-id",)
