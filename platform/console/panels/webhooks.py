"""Webhooks with their deliveries, and a delivery with its attempts. The URL is shown as its host alone."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest

from console.panels.columns import AUDIT
from staff.parts.columns import badge, list_url, row_link, shortened, time_text
from staff.parts.pages import Panel, page, panel, table
from webhooks.admin import webhook_state
from webhooks.models import Attempt, AuditEntry, Delivery, Subscription

WEBHOOK, DELIVERY = "webhooks.Subscription", "webhooks.Delivery"

page(WEBHOOK, "Overview", "Deliveries", "Activity", badges=lambda row: [webhook_state(row)])


@panel(WEBHOOK, "Overview")
def overview_panels(request: HttpRequest, row: Subscription) -> Iterator[Panel]:
    facts = [
        ("Account", row_link(row.account)),
        ("Namespace", row.namespace_slug or "the whole account"),
        ("Receiver", row.host),
        ("Events", ", ".join(row.events) or "-"),
        ("Description", row.description or "-"),
        ("Created", time_text(row.created_at)),
    ]
    yield Panel("Webhook", facts)
    health = [
        ("State", webhook_state(row)),
        ("Last attempt", time_text(row.last_triggered_at)),
        ("Last answer", row.last_status_code or "-"),
        ("Failing since", time_text(row.failing_since)),
        ("Switched off because", row.disabled_reason or "-"),
    ]
    yield Panel("Health", health)


@panel(WEBHOOK, "Deliveries", "webhooks.view_delivery")
def deliveries_panel(request: HttpRequest, row: Subscription) -> Panel:
    columns = (
        ("Delivery", lambda one: row_link(one, one.pk)),
        ("Event", lambda one: one.event.type if one.event else one.event_id),
        ("Status", lambda one: badge(one.status)),
        ("Attempts", lambda one: one.attempts),
        ("Answer", lambda one: one.last_status_code or "-"),
        ("Why", lambda one: shortened(one.last_error, 60)),
        ("Next", lambda one: time_text(one.next_attempt_at)),
        ("Made", lambda one: time_text(one.created_at)),
    )
    found = Delivery.objects.filter(subscription=row).order_by("-id").select_related("event").defer("event__data")
    return table("Deliveries", found, columns, more=list_url("webhooks.Delivery", by_subscription=row.pk))


@panel(WEBHOOK, "Activity", "webhooks.view_auditentry")
def audit_panel(request: HttpRequest, row: Subscription) -> Panel:
    found = AuditEntry.objects.filter(subscription_id=row.pk).order_by("-id")
    more = list_url("webhooks.AuditEntry", by_subscription_id=row.pk)
    return table("Who did what", found, AUDIT, more=more)


page(DELIVERY, "Overview")


@panel(DELIVERY, "Overview")
def delivery_panels(request: HttpRequest, row: Delivery) -> Iterator[Panel]:
    facts = [
        ("Webhook", row_link(row.subscription)),
        ("Status", badge(row.status)),
        ("Attempts", row.attempts),
        ("Next attempt", time_text(row.next_attempt_at)),
        ("Last answer", row.last_status_code or "-"),
        ("Why", row.last_error or "-"),
        ("Made", time_text(row.created_at)),
        ("Delivered", time_text(row.delivered_at)),
    ]
    yield Panel("Delivery", facts)
    columns = (
        ("Attempt", lambda one: one.number),
        ("When", lambda one: time_text(one.started_at)),
        ("Took", lambda one: f"{one.duration_ms} ms"),
        ("Answer", lambda one: one.status_code or "-"),
        ("Why", lambda one: shortened(one.error, 60)),
    )
    yield table("Attempts", Attempt.objects.filter(delivery=row).order_by("-number"), columns, wide=False)
