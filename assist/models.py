"""API keys, the counts of each day, calls in progress, audit entries. Written by `assist.services` (keys),
`assist.day_count` and `assist.calls` only.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from accounts.audit import AccountEvent
from accounts.models import Account
from common.ids import new_id
from common.secrets_at_rest import EncryptedJSONField
from namespaces.models import Namespace


def new_key_id() -> str:
    return new_id("apk")


def new_call_id() -> str:
    return new_id("gen")


class ApiKey(models.Model):
    """A key of the code assistance API. `namespace` pays; null: the account's default one at the time of a call.

    `webhook_secret` signs the events that are sent to the `webhook_url` of a request.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_key_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="api_keys")
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, null=True, blank=True, related_name="api_keys")
    name = models.CharField(max_length=120, blank=True)
    key_hash = models.CharField(max_length=64, unique=True, editable=False)
    key_prefix = models.CharField(max_length=16, editable=False)
    webhook_secret = EncryptedJSONField(editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return self.name or self.key_prefix


class DayCount(models.Model):
    """Number of an account's calls that count on one UTC day."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(db_index=True)
    used = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "day"], name="assist_day_of_an_account")]

    def __str__(self) -> str:
        return f"{self.day}: {self.used}"


class Call(models.Model):
    """A call from the moment it counts to its end; then the row is deleted. If its process died the row remains, and
    after `expires_at` its count and its credits are given back.

    `namespace_id` is a plain id, like the hold's. The id is the key of the hold.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_call_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    namespace_id = models.CharField(max_length=24)
    day = models.DateField()
    expires_at = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.id


class KeyEvent(AccountEvent):
    """An audit entry of an API key."""

    subject_field = "key_id"

    key_id = models.CharField(max_length=24)

    class Meta(AccountEvent.Meta):
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["key_id", "-id"], name="keyevent_of_key"),
        ]
