"""Accounts and what proves who calls. Written by `accounts.services` and the admin only."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models

from accounts.scopes import Scope
from common.ids import new_id


def new_account_id() -> str:
    return new_id("acc")


def new_credential_id() -> str:
    return new_id("cred")


class Plan(models.Model):
    """What an account may have: a ceiling for each workspace, the owned pool, the running pool, a count."""

    code = models.SlugField(primary_key=True, max_length=40)
    label = models.CharField(max_length=80)
    max_workspaces = models.PositiveIntegerField(help_text="Workspaces and sandboxes together.")
    cpus = models.DecimalField("CPUs per workspace", max_digits=8, decimal_places=3, validators=[MinValueValidator(0)])
    memory_mb = models.PositiveIntegerField("memory per workspace (MiB)")
    disk_size_mb = models.PositiveIntegerField("disk per workspace (MiB)")
    pool_cpus = models.DecimalField("owned CPUs", max_digits=10, decimal_places=3, validators=[MinValueValidator(0)])
    pool_memory_mb = models.PositiveBigIntegerField("owned memory (MiB)")
    pool_disk_size_mb = models.PositiveBigIntegerField("owned disk (MiB)")
    running_cpus = models.DecimalField(
        "running CPUs", max_digits=10, decimal_places=3, validators=[MinValueValidator(0)]
    )
    running_memory_mb = models.PositiveBigIntegerField("running memory (MiB)")
    running_disk_size_mb = models.PositiveBigIntegerField("disk of running workspaces (MiB)")

    class Meta:
        ordering = ["code"]

    def __str__(self) -> str:
        return self.label


class Account(models.Model):
    """A customer. Its row is the lock under which pools are counted."""

    id = models.CharField(primary_key=True, max_length=24, default=new_account_id, editable=False)
    name = models.CharField(max_length=120)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="accounts")
    is_active = models.BooleanField(default=True, help_text="An inactive account's credentials are refused.")
    # Kept by the services that make and remove workspaces: counting 100,000 rows would double a list's time.
    workspace_count = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Credential(models.Model):
    """A client id and the keyed hash of its secret, pinned to what its scope names.

    `namespace_id` and `workspace_id` are plain ids: namespaces and workspaces stand above this room.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_credential_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="credentials")
    client_id = models.CharField(max_length=64, unique=True, editable=False)
    secret_hash = models.CharField(max_length=64, editable=False)
    name = models.CharField(max_length=120, blank=True)
    scope = models.CharField(max_length=16, choices=Scope.choices, default=Scope.ACCOUNT)
    namespace_id = models.CharField(max_length=24, blank=True)
    namespace_slug = models.CharField(max_length=128, blank=True)
    workspace_id = models.CharField(max_length=24, blank=True)
    # Counts rotations: a token carries the epoch it was minted in and ends with it.
    epoch = models.PositiveIntegerField(default=1, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name or self.client_id


class IdempotencyKey(models.Model):
    """One use of a key: what was asked (a hash) and which resource answered. Kept 24 hours."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="idempotency_keys")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    resource_id = models.CharField(max_length=24)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "key"], name="idempotency_key_once")]

    def __str__(self) -> str:
        return self.key
