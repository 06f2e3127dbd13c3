"""Namespaces and their activity (specification, Namespace object). Written by `namespaces.services` only, and by
`namespaces.quota_suspension` if a quota suspends one.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.audit import AccountEvent
from accounts.models import Account
from common.ids import new_id


def new_namespace_id() -> str:
    return new_id("ns")


class Status(models.TextChoices):
    """Status of a namespace. `suspended`: nothing is created or started in it, by hand or by quota. `inactive`: a mark
    without effect.
    """

    ACTIVE = "active"
    INACTIVE = "inactive"
    SUSPENDED = "suspended"


class Type(models.TextChoices):
    """Use of a namespace; a label without effect."""

    DEFAULT = "default"
    PRODUCTION = "production"
    STAGING = "staging"
    DEVELOPMENT = "development"
    TESTING = "testing"


class Namespace(models.Model):
    """A group of workspaces with limits and a status of its own. An account has exactly one default namespace.

    `resource_limits`: max_workspaces, max_vcpus, max_ram_mb, max_disk_gb, each absent or null for no limit.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_namespace_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="namespaces")
    name = models.CharField(max_length=255)
    slug = models.CharField(max_length=128)
    description = models.TextField(blank=True, default="")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    # Why it is suspended: by hand, by a quota, or by both (wire contract, section 7).
    suspended_by_hand = models.BooleanField(default=False)
    suspended_by_quota = models.BooleanField(default=False)
    # Whether the quota's action stops its workspaces. While it is suspended by hand they are stopped in any case.
    quota_stops_workspaces = models.BooleanField(default=False, editable=False)
    type = models.CharField(max_length=16, choices=Type.choices, default=Type.DEFAULT)
    is_default = models.BooleanField(default=False)
    metadata = models.JSONField(default=dict, blank=True)
    tags = models.JSONField(default=list, blank=True)
    resource_limits = models.JSONField(default=dict, blank=True)
    last_active_at = models.DateTimeField(null=True, blank=True)
    # Set while the workspaces in it are being deleted. No selector finds it any more, and its slug is free.
    deleted_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        # Rows that sweeps look for every few seconds; nearly always none.
        indexes = [
            models.Index(fields=["deleted_at"], condition=Q(deleted_at__isnull=False), name="namespace_deleted"),
            models.Index(fields=["id"], condition=Q(suspended_by_hand=True), name="namespace_suspended_by_hand"),
            models.Index(fields=["id"], condition=Q(quota_stops_workspaces=True), name="namespace_quota_stops"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "slug"], condition=Q(deleted_at=None), name="namespace_slug_once_per_account"
            ),
            models.UniqueConstraint(
                fields=["account"], condition=Q(is_default=True), name="one_default_namespace_per_account"
            ),
        ]

    def __str__(self) -> str:
        return self.slug


class NamespaceActivity(AccountEvent):
    """An audit entry of a namespace. `changes`: field to its value before and after."""

    subject_field = "namespace_id"

    namespace_id = models.CharField(max_length=24)
    changes = models.JSONField(default=dict)

    class Meta(AccountEvent.Meta):
        verbose_name_plural = "namespace activity"
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["namespace_id", "-id"], name="activity_of_namespace"),
        ]
