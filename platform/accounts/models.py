"""Plans, accounts, credentials, idempotency keys. Written by `accounts.services` only."""

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
    """The limits of an account: of each workspace, of all it owns, of all that run, and their number. Sizes are MiB."""

    code = models.SlugField(primary_key=True, max_length=40)
    label = models.CharField(max_length=80)
    max_workspaces = models.PositiveIntegerField(help_text="Workspaces and sandboxes together.")
    max_snapshots = models.PositiveIntegerField("snapshots", default=20, help_text="Snapshots that are kept.")
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
    assist_calls_per_day = models.PositiveIntegerField(
        "code assistance calls per day", default=100, help_text="Of all API keys of an account, by UTC day."
    )
    allows_placement = models.BooleanField(
        "placement", default=True, help_text="Whether creates may say on which host or beside what."
    )

    class Meta:
        ordering = ["code"]

    def __str__(self) -> str:
        return self.label


class Account(models.Model):
    """A customer. Resource pools are counted and claimed under a lock on its row."""

    id = models.CharField(primary_key=True, max_length=24, default=new_account_id, editable=False)
    name = models.CharField(max_length=120)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="accounts")
    is_active = models.BooleanField(default=True, help_text="An inactive account's credentials are refused.")
    # Maintained by the services that create and delete workspaces: COUNT over 100,000 rows doubles a list's time.
    workspace_count = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Credential(models.Model):
    """A client id and the keyed hash of its secret, with a scope and its binding.

    `namespace_id` and `workspace_id` are plain ids, as this app must not import namespaces or workspaces.
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
    # Counts rotations: a token carries the epoch it was minted in and is revoked with it.
    epoch = models.PositiveIntegerField(default=1, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name or self.client_id


class IdempotencyKey(models.Model):
    """One use of an idempotency key: a hash of the request and the resource it created. Deleted after 24 hours."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="idempotency_keys")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    resource_id = models.CharField(max_length=24)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "key"], name="idempotency_key_once")]

    def __str__(self) -> str:
        return self.key
