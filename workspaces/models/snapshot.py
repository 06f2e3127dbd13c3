"""Snapshots: kept states of workspaces (wire contract, section 10)."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from common.ids import new_id
from common.secrets_at_rest import DataJSONField
from namespaces.models import Namespace
from vmbackend.models import Host
from workspaces.models.workspace import FailureReason, Workspace, whole_or_fraction


def new_snapshot_id() -> str:
    return new_id("snap")


class SnapshotStatus(models.TextChoices):
    """Status of a snapshot. `ready` and `failed` are final."""

    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"


class SnapshotPurpose(models.TextChoices):
    """Purpose of a snapshot. One for forks has no name, no owner sees it, and it goes when they are made."""

    KEPT = "kept"
    FORK = "fork"


LIVING = Q(deleted_at=None)
SHOWN = LIVING & Q(purpose=SnapshotPurpose.KEPT)
# Those that hold their name and a place of the plan. A failed one holds neither: its owner may try again at once.
COUNTED = SHOWN & Q(status__in=[SnapshotStatus.CREATING, SnapshotStatus.READY])


class Snapshot(models.Model):
    """A kept state of a workspace, in the store of its host, and the settings that the workspace had then.

    Written by `workspaces.snapshot_rows` only. Memory and disk sizes are MiB. `memory`: whether it may be loaded from
    memory. `differs`: all that keeps its memory from being loaded on its host, as the host last said. A deleted one is
    invisible; its row stays until its host has removed the files, and what it cost is charged.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_snapshot_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="snapshots")
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="snapshots")
    workspace = models.ForeignKey(Workspace, null=True, on_delete=models.SET_NULL, related_name="snapshots")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="kept_snapshots")
    parent = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    purpose = models.CharField(max_length=8, choices=SnapshotPurpose.choices, default=SnapshotPurpose.KEPT)
    name = models.CharField(max_length=128)
    status = models.CharField(max_length=16, choices=SnapshotStatus.choices, default=SnapshotStatus.CREATING)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    # The operation that makes it.
    operation_id = models.CharField(max_length=24, blank=True, default="")
    # The ids of the workspaces that are forked from it.
    forks = models.JSONField(default=list, blank=True)
    memory = models.BooleanField(default=False)
    differs = models.JSONField(default=list, blank=True)

    # The workspace as it was.
    image = models.CharField(max_length=512)
    image_digest = models.CharField(max_length=80)
    preset = models.CharField(max_length=120, blank=True, default="")
    catalog_snapshot = models.JSONField(null=True, blank=True)
    cpu_millis = models.PositiveIntegerField()
    memory_mb = models.PositiveIntegerField()
    disk_size_mb = models.PositiveIntegerField()
    env: models.Field[Any, Any] = DataJSONField(default=dict, blank=True)
    cmd = models.JSONField(null=True, blank=True)
    workloads: models.Field[Any, Any] = DataJSONField(default=list, blank=True)
    network = models.JSONField(default=dict, blank=True)

    # What it occupies on the host, once it is ready; and MiB of the owned disk pool, also before.
    size_bytes = models.BigIntegerField(default=0)
    pool_mb = models.PositiveIntegerField(default=0)
    charged_until = models.DateTimeField(null=True)

    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    # When a host that may not charge for it removed its files: the row is the control plane's to remove.
    removed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "name"], condition=COUNTED, name="snapshot_name_once_per_account"
            ),
        ]
        indexes = [
            models.Index(fields=["account", "-created_at", "-id"], condition=SHOWN, name="snapshot_list"),
            # Narrow, so that a list of many is counted from it alone.
            models.Index(fields=["account"], condition=SHOWN, name="snapshot_count"),
            models.Index(fields=["account", "pool_mb"], condition=LIVING, name="snapshot_pool"),
            models.Index(fields=["status", "-id"], name="snapshot_by_status"),
            models.Index(fields=["expires_at"], condition=Q(expires_at__isnull=False), name="snapshot_expires_at"),
            models.Index(fields=["deleted_at"], condition=Q(deleted_at__isnull=False), name="snapshot_deleted_at"),
            models.Index(fields=["charged_until"], condition=Q(charged_until__isnull=False), name="snapshot_charged"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def cpus(self) -> int | float:
        return whole_or_fraction(self.cpu_millis)

    @property
    def failure(self) -> FailureReason | None:
        """Return why it was not made, if it failed."""
        return FailureReason(self.error_code, self.error_message) if self.error_code else None

    @property
    def namespace_slug(self) -> str:
        """Return the namespace's slug, without a query if `selectors` joined it in."""
        joined: str | None = self.__dict__.get("joined_namespace")
        return joined if joined is not None else self.namespace.slug
