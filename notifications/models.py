"""Send tokens, devices, sends, and what the platform keeps about push providers.

A send is not the child of an account or a token in the database: it is deleted after a day, and until then it outlives
both. Its content is erased when it has ended.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.audit import AccountEvent
from accounts.models import Account
from common.ids import new_id, random_number
from common.secrets_at_rest import EncryptedJSONField
from common.work.leases import LeasedRow
from workspaces.models import Workspace


def new_send_id() -> str:
    return new_id("ntf")


class TokenStatus(models.TextChoices):
    """The states of a token: whether sends with it are accepted."""

    ACTIVE = "active"
    REVOKED = "revoked"


class DevicePlatform(models.TextChoices):
    """The platform that a device runs; staff and owners read it, our code does not."""

    IOS = "ios"
    ANDROID = "android"
    WEB = "web"


class Provider(models.TextChoices):
    """The service that delivers to a device."""

    FCM = "fcm"
    WEB_PUSH = "web_push"


class SendState(models.TextChoices):
    """`queued`: no process has it; `running`: the process with its claim has it; `ended`."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class SendToken(models.Model):
    """The right to send notifications from one workspace. It ends with the workspace.

    `metadata` is the owner's: any JSON values.
    """

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="send_tokens")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="send_tokens")
    name = models.CharField(max_length=120, blank=True)
    metadata: models.Field[Any, Any] = EncryptedJSONField(default=dict)
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    token_prefix = models.CharField(max_length=16, editable=False)
    status = models.CharField(max_length=16, choices=TokenStatus.choices, default=TokenStatus.ACTIVE)
    last_used_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status="active", revoked_at=None) | Q(status="revoked", revoked_at__isnull=False),
                name="send_token_revoked_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return self.name or f"{self.token_prefix}…"


class Device(models.Model):
    """A device that gets notifications of an account: one row for each `device_id` that the account's apps chose.

    `address` is the registration token of FCM, or the endpoint and keys of a Web Push subscription. `address_hash`
    names it in guards: a device that was registered again has another hash. Its owner knows it by `public_id`, too.
    """

    public_id = models.BigIntegerField(unique=True, default=random_number, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="devices")
    device_id = models.CharField(max_length=128)
    platform = models.CharField(max_length=16, choices=DevicePlatform.choices)
    provider = models.CharField(max_length=16, choices=Provider.choices)
    address: models.Field[Any, Any] = EncryptedJSONField()
    address_hash = models.CharField(max_length=64, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["account", "device_id"], name="device_once_per_account"),
            models.UniqueConstraint(fields=["account", "address_hash"], name="device_address_once_per_account"),
        ]
        indexes = [models.Index(fields=["account", "id"], name="device_of_account")]

    def __str__(self) -> str:
        return self.device_id


class Send(LeasedRow):
    """One request to send, and what has come of it so far.

    `devices`: how many there were when it was accepted; `last_device`: the newest of them. Devices up to `position`
    were handed to the process with the claim, `begun` of them; nothing hands them out once more. `delivered` and
    `failed` (with `errors`, groups of it) count those whose outcome is written; at the end they sum up to `devices`.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_send_id, editable=False)
    account_id = models.CharField(max_length=24)
    workspace_id = models.CharField(max_length=24)
    token_id = models.BigIntegerField()
    content: models.Field[Any, Any] = EncryptedJSONField(null=True)
    devices = models.PositiveIntegerField()
    last_device = models.BigIntegerField()
    state = models.CharField(max_length=16, choices=SendState.choices, default=SendState.QUEUED)
    position = models.BigIntegerField(default=0)
    begun = models.PositiveIntegerField(default=0)
    delivered = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    errors: models.JSONField[list[Any]] = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(devices__gte=models.F("delivered") + models.F("failed")), name="send_counts_within_devices"
            ),
            models.CheckConstraint(
                condition=~Q(state="ended") | Q(devices=models.F("delivered") + models.F("failed"), content=None),
                name="send_ended_with_all_counted",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "created_at"], name="send_by_state"),
            models.Index(fields=["ended_at"], name="send_by_end"),
            # For the filters of admin lists.
            models.Index(fields=["account_id", "-id"], name="send_of_account"),
            models.Index(fields=["workspace_id", "-id"], name="send_of_workspace"),
            models.Index(fields=["state", "-id"], name="send_in_state"),
            # What the dashboard counts, and the list behind it.
            models.Index(fields=["-id", "created_at"], condition=Q(failed__gt=0), name="send_failed"),
        ]

    def __str__(self) -> str:
        return self.id


class ProviderPause(models.Model):
    """The time until which a provider asked for a pause (`Retry-After`), by account: what one account's devices caused
    delays no other one. `provider`: `fcm`, or the origin of a Web Push endpoint.
    """

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    provider = models.CharField(max_length=300)
    until = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "provider"], name="provider_pause_once")]

    def __str__(self) -> str:
        return self.provider


class VapidKey(models.Model):
    """The key pair by which push services know this instance; one row, made once.

    Browsers bind their subscriptions to it, so it never changes. `private_key`: its 32 bytes, base64url.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    private_key = EncryptedJSONField()
    public_key = models.CharField(max_length=100)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="vapid_key_one")]

    def __str__(self) -> str:
        return self.public_key


class NotificationEvent(AccountEvent):
    """An audit entry about a send token or a device. It never holds a token, an endpoint or a key."""

    subject_field = "subject"

    subject = models.CharField(max_length=160)

    class Meta(AccountEvent.Meta):
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["subject", "-id"], name="notificationevent_of_subject"),
        ]
