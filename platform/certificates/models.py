"""The rows: accounts at CAs, certificates with the orders under way, counted attempts. Written by this app's
services."""

from __future__ import annotations

from django.db import models

from common.ids import new_id
from common.secrets_at_rest import EncryptedJSONField
from common.work.leases import LeasedRow


def new_certificate_id() -> str:
    return new_id("cert")


class Status(models.TextChoices):
    """The states of a certificate; a name without a certificate has the state `none` (selectors.py)."""

    PENDING = "pending"
    ACTIVE = "active"
    FAILED = "failed"
    EXPIRED = "expired"


class AcmeAccount(models.Model):
    """The platform's account at one CA. `url` is empty until the CA has answered; a second registration with the same
    key finds the same account. `contact`: what the CA was last given. Nothing is asked of the CA before `paused_until`.
    """

    directory = models.CharField(max_length=500, unique=True)
    key = EncryptedJSONField()
    contact = models.CharField(max_length=320, blank=True)
    url = models.CharField(max_length=2048, blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.directory


class Certificate(LeasedRow):
    """The certificate of one name, and the order under way for its next one.

    `chain`, `key`, `not_before`, `expires_at` and `issued_by` (a directory) are those that are served, and change
    together. An order is under way while `order_key` is there: that is written before the CA is asked for the
    order, `order_url` when it has answered. `due_at` is when the row is to be looked at next (steps.py),
    `next_attempt_at` when the CA is. `announced`: what the app above was last informed of, that there is a
    certificate or that there is none. `owner`: whose orders are limited together, an id of the app above.
    `limited_until`: the CA limits the name, so no renewal is forced before. A process that carries out a step
    has claimed the row (`certificates.leases`).
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_certificate_id, editable=False)
    name = models.CharField(max_length=253, unique=True)
    owner = models.CharField(max_length=24, blank=True)
    wanted = models.BooleanField(default=True)
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.PENDING)
    error = models.CharField(max_length=500, blank=True)

    chain = models.TextField(blank=True)
    key = EncryptedJSONField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    issued_by = models.CharField(max_length=500, blank=True)
    announced = models.BooleanField(default=False)

    account = models.ForeignKey(AcmeAccount, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    order_key = EncryptedJSONField(null=True, blank=True)
    order_url = models.CharField(max_length=2048, blank=True)
    order_began_at = models.DateTimeField(null=True, blank=True)
    challenge_token = models.CharField(max_length=128, blank=True)

    failures = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    limited_until = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        indexes = [
            # What the dashboard counts.
            models.Index(fields=["status", "expires_at"], condition=models.Q(wanted=True), name="certificate_by_status")
        ]
        constraints = [
            models.CheckConstraint(
                name="certificate_is_whole",
                condition=models.Q(chain="", key=None, not_before=None, expires_at=None)
                | (
                    ~models.Q(chain="")
                    & models.Q(key__isnull=False, not_before__isnull=False, expires_at__isnull=False)
                ),
            ),
            models.CheckConstraint(
                name="certificate_active_has_a_chain", condition=~models.Q(status="active") | ~models.Q(chain="")
            ),
        ]

    def __str__(self) -> str:
        return self.name


class OrderAttempt(models.Model):
    """An order that was or may have been placed, for the limits of the last hour; outlives the certificate's row."""

    name = models.CharField(max_length=253)
    owner = models.CharField(max_length=24, blank=True)
    began_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["name", "began_at"], name="order_attempt_of_name"),
            models.Index(fields=["owner", "began_at"], name="order_attempt_of_owner"),
            models.Index(fields=["began_at"], name="order_attempt_time"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.began_at}"
