"""Webhook subscriptions, and the outbox: events, and one delivery of an event for each subscription that wants it.

Subscriptions are written by `webhooks.subscriptions`, events and new deliveries by `webhooks.events`, what becomes of a
delivery by the process that sends it. Namespaces are plain ids and slugs, as this app must not import them.

Deliveries and attempts are many. Rows of other models refer to them in the database alone (`DO_NOTHING`, checked at the
commit), so that deleting an account is one statement for each table and loads none of them.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.audit import AccountEvent
from accounts.models import Account
from common.ids import new_id, random_number
from common.secrets_at_rest import EncryptedJSONField
from common.work.leases import Lease, LeasedRow

# An attempt of 15 s, and as long for writing what came of it.
DELIVERY_LEASE = Lease(timedelta(seconds=30))


def new_subscription_id() -> str:
    return new_id("whk")


def new_event_id() -> str:
    return new_id("evt")


def new_delivery_id() -> str:
    return new_id("dlv")


class DisabledReason(models.TextChoices):
    """The reason why the platform switched a subscription off: the receiver answered 410, or got nothing for days."""

    GONE = "gone"
    FAILING = "failing"


class DeliveryStatus(models.TextChoices):
    """`pending` is due at `next_attempt_at`. `disabled`: its subscription was switched off before it was delivered."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DISABLED = "disabled"


class Subscription(models.Model):
    """A webhook: where events are sent, which ones, and the secret that signs them. Its owner knows it by `public_id`.

    `namespace_id`, `namespace_slug`: empty for the events of the whole account. `events`: names, or `["*"]` for all.
    `url`, which may carry a token in its path or query, is encrypted; `host` is what staff see of it.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_subscription_id, editable=False)
    public_id = models.BigIntegerField(unique=True, default=random_number, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="webhooks")
    namespace_id = models.CharField(max_length=24, blank=True, db_index=True)
    namespace_slug = models.CharField(max_length=128, blank=True)
    url = EncryptedJSONField()
    host = models.CharField(max_length=255)
    events = models.JSONField(default=list)
    description = models.CharField(max_length=500, blank=True)
    active = models.BooleanField(default=True)
    secret = EncryptedJSONField()
    # Signs as well until the time beside it (`POST /webhooks/:id/rotate`).
    former_secret = EncryptedJSONField(null=True, blank=True)
    former_secret_until = models.DateTimeField(null=True, blank=True)
    # The outcome of the newest attempt.
    last_triggered_at = models.DateTimeField(null=True, blank=True)
    last_status_code = models.PositiveSmallIntegerField(null=True, blank=True)
    # The first attempt since the last delivery that did not deliver.
    failing_since = models.DateTimeField(null=True, blank=True)
    disabled_reason = models.CharField(max_length=16, choices=DisabledReason.choices, null=True, blank=True)
    # Not null: a receiver that requests named themselves (`webhooks.direct`), in no list and without events of its own.
    # A hash of the address and of who named it.
    direct_key = models.CharField(max_length=64, null=True, editable=False)
    # No selector finds it any more; the row is removed once its deliveries are.
    deleted_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["deleted_at"], condition=Q(deleted_at__isnull=False), name="webhook_deleted"),
            models.Index(fields=["updated_at"], condition=Q(direct_key__isnull=False), name="webhook_direct"),
            # For the counts of the dashboard.
            models.Index(fields=["failing_since"], condition=Q(failing_since__isnull=False), name="webhook_failing"),
            models.Index(fields=["updated_at"], condition=Q(disabled_reason__isnull=False), name="webhook_disabled"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "direct_key"], condition=Q(direct_key__isnull=False), name="direct_webhook_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.id} to {self.host}"


class Event(models.Model):
    """A fact that is announced. `key`: the same fact, published again, is no second event. Kept for 30 days."""

    id = models.CharField(primary_key=True, max_length=24, default=new_event_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    type = models.CharField(max_length=64)
    namespace_id = models.CharField(max_length=24, blank=True)
    namespace_slug = models.CharField(max_length=128, blank=True)
    data = models.JSONField()
    key = models.CharField(max_length=150, null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["type", "-id"], name="event_by_type"),
            models.Index(fields=["account", "-id"], name="event_of_account"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["account", "key"], condition=~Q(key=None), name="event_of_a_key_once")
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"


class Delivery(LeasedRow):
    """One event for one subscription. `attempts` were made; the next one is due at `next_attempt_at`.

    A process that makes an attempt has claimed the row (`DELIVERY_LEASE`).
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_delivery_id, editable=False)
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    event = models.ForeignKey(Event, on_delete=models.DO_NOTHING, related_name="deliveries", db_index=False)
    status = models.CharField(max_length=16, choices=DeliveryStatus.choices, default=DeliveryStatus.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True, default=timezone.now)
    last_status_code = models.PositiveSmallIntegerField(null=True, blank=True)
    last_error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(fields=["event", "subscription"], name="event_once_for_a_subscription"),
            models.CheckConstraint(
                condition=Q(status=DeliveryStatus.PENDING, next_attempt_at__isnull=False)
                | (~Q(status=DeliveryStatus.PENDING) & Q(next_attempt_at__isnull=True)),
                name="delivery_due_while_pending",
            ),
        ]
        indexes = [
            models.Index(fields=["subscription", "-id"], name="deliveries_of_webhook"),
            # Few, among all that were delivered in 30 days: a list or redelivery of them reads no others.
            models.Index(
                fields=["subscription", "id"], condition=Q(status=DeliveryStatus.FAILED), name="deliveries_failed"
            ),
            models.Index(
                fields=["subscription", "id"], condition=Q(status=DeliveryStatus.DISABLED), name="deliveries_disabled"
            ),
            # `attempts` is never negative: only a query that says so can use this index (`claims.is_anything_due`). A
            # query for the first delivery of one subscription by it would read those of all others.
            models.Index(
                fields=["next_attempt_at"],
                condition=Q(status=DeliveryStatus.PENDING, attempts__gte=0),
                name="deliveries_due",
            ),
            models.Index(
                fields=["subscription", "next_attempt_at"],
                condition=Q(status=DeliveryStatus.PENDING),
                name="deliveries_due_of_webhook",
            ),
            # The admin's lists of one status, newest first.
            models.Index(
                fields=["status", "-id"],
                condition=~Q(status=DeliveryStatus.DELIVERED),
                name="deliveries_not_delivered",
            ),
            # As many rows as attempts are in flight.
            models.Index(fields=["lease_until"], condition=Q(lease_until__isnull=False), name="deliveries_leased"),
        ]

    def __str__(self) -> str:
        return f"{self.id} {self.status}"


class Attempt(models.Model):
    """One attempt of a delivery, written when it ends. `error` is empty if the receiver answered."""

    id = models.BigAutoField(primary_key=True)
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="+")
    delivery = models.ForeignKey(Delivery, on_delete=models.DO_NOTHING, related_name="attempt_rows", db_index=False)
    number = models.PositiveIntegerField()
    started_at = models.DateTimeField(db_index=True)
    duration_ms = models.PositiveIntegerField()
    status_code = models.PositiveSmallIntegerField(null=True)
    error = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["delivery", "number"], name="attempts_of_delivery")]

    def __str__(self) -> str:
        return f"{self.delivery_id}, attempt {self.number}"


class AuditEntry(AccountEvent):
    """An audit entry of a subscription."""

    subject_field = "subscription_id"

    subscription_id = models.CharField(max_length=24)

    class Meta(AccountEvent.Meta):
        verbose_name_plural = "audit entries"
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["subscription_id", "-id"], name="auditentry_of_subscription"),
        ]
