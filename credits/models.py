"""Prices, balances and the ledger in credits (wire contract, section 7).

`credits.services` writes them. Only `credits.ledger`, `holds` and `metered_charges` write the ledger. Namespaces and
accounts are referenced by plain ids: the ledger outlives both.
"""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from credits.amounts import CreditsField

# A balance ends at 92 billion credits: 64 CPUs that are always busy take 160 years at the highest price.
MAX_PRICE = Decimal(1000)
MAX_QUOTA = Decimal(10_000_000)
SERVICE_LENGTH = 64


class Unit(models.TextChoices):
    """Units that have a price. A GB is 1e9 bytes of disk, network, CDN or snapshots, and 1024 MiB of memory."""

    VCPU_HOUR = "vcpu_hour", "an hour of one CPU's time"
    GB_HOUR = "gb_hour", "a GB of memory for an hour"
    DISK_GB = "disk_gb", "a GB read from or written to disk"
    NETWORK_GB = "network_gb", "a GB received or sent"
    ASSIST_CALL = "assist_call", "a call of the code assistance API"
    ASSIST_TOKENS = "assist_tokens", "1,000 tokens of the code assistance API"
    CDN_GB = "cdn_gb", "a GB published"
    PAGE_DEPLOY = "page_deploy", "a deploy of a page"
    SNAPSHOT_GB_HOUR = "snapshot_gb_hour", "a GB of snapshots for an hour"


class Service(models.TextChoices):
    """Services that the platform charges. Owners may also set quotas and defaults for names of their own."""

    SANDBOX = "sandbox", "workspaces and sandboxes"
    DEPLOYMENT = "deployment", "pages"
    AI = "ai", "code assistance"
    CDN = "cdn", "CDN"


class OverdraftAction(models.TextChoices):
    """Actions when a quota and its overdraft are used up.

    `block` refuses what would cost; `stop_workspaces` also stops running workspaces.
    """

    BLOCK = "block"
    STOP_WORKSPACES = "stop_workspaces"


class EntryKind(models.TextChoices):
    """Kinds of entries. Charges are positive, refunds negative; a reset is the negative of what was used until then."""

    CHARGE = "charge"
    REFUND = "refund"
    RESET = "reset"


class Rate(models.Model):
    """Price of one unit, in credits. It is valid from `effective_from` until the next rate of its unit.

    Past rates are never changed, so that every charge stays reproducible.
    """

    unit = models.CharField(max_length=16, choices=Unit.choices)
    credits = CreditsField(validators=[MinValueValidator(Decimal(0)), MaxValueValidator(MAX_PRICE)])
    effective_from = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["unit", "-effective_from"]
        constraints = [
            models.UniqueConstraint(fields=["unit", "effective_from"], name="one_rate_at_a_time"),
            models.CheckConstraint(condition=Q(credits__gte=0), name="rate_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.credits.normalize():f} for {self.get_unit_display()}"


class Balance(models.Model):
    """Credits that a namespace has used of a service since the last reset, and its quota if one is set.

    `used` is the sum of the ledger's entries; `held` is set aside and not settled yet. Without a `quota_limit` nothing
    is refused.
    """

    account_id = models.CharField(max_length=24, db_index=True)
    namespace_id = models.CharField(max_length=24)
    service = models.CharField(max_length=SERVICE_LENGTH, choices=Service.choices)
    used = CreditsField(default=Decimal(0))
    held = CreditsField(default=Decimal(0))
    quota_limit = CreditsField(null=True)
    overdraft = CreditsField(default=Decimal(0))
    on_overdraft_action = models.CharField(
        max_length=16, choices=OverdraftAction.choices, default=OverdraftAction.BLOCK
    )
    # Percent of the limit, in order.
    notification_thresholds = models.JSONField(default=list)
    # Announced since the quota was set or reset: the highest threshold, and whether it is used up.
    last_threshold_fired = models.FloatField(null=True)
    depleted_fired = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace_id", "service"], name="one_balance_for_a_service"),
            models.CheckConstraint(condition=Q(held__gte=0), name="held_not_negative"),
        ]
        indexes = [models.Index(fields=["service"], name="balances_of_service")]  # for the admin

    def __str__(self) -> str:
        return f"{self.service} of {self.namespace_id}"


class Entry(models.Model):
    """Line of the ledger. Triggers refuse every change and deletion.

    `key`: the reason of the entry; a second entry of the balance with the same key is refused. `balance_after`: the
    balance's `used` after the entry.
    """

    balance = models.ForeignKey(Balance, on_delete=models.PROTECT, db_index=False, related_name="entries")
    kind = models.CharField(max_length=8, choices=EntryKind.choices)
    amount = CreditsField()
    balance_after = CreditsField()
    workspace_id = models.CharField(max_length=24, blank=True)
    description = models.CharField(max_length=200, blank=True)
    key = models.CharField(max_length=100, null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "entries"
        indexes = [
            models.Index(fields=["balance", "-id"], name="entries_of_balance"),
            # All other kinds are few among the charges.
            models.Index(fields=["kind", "-id"], condition=~Q(kind="charge"), name="entries_but_charges"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["balance", "key"], condition=Q(key__isnull=False), name="entry_once_by_key")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount}"


class Spending(models.Model):
    """Credits charged to a balance on one UTC day, and by how many entries: sums of the ledger, for reports."""

    balance = models.ForeignKey(Balance, on_delete=models.PROTECT, db_index=False, related_name="spending")
    day = models.DateField()
    credits = CreditsField()
    requests = models.PositiveIntegerField()

    class Meta:
        verbose_name_plural = "spending"
        indexes = [models.Index(fields=["day"], name="spending_by_day")]
        constraints = [models.UniqueConstraint(fields=["balance", "day"], name="spending_of_a_day")]

    def __str__(self) -> str:
        return f"{self.day}: {self.credits}"


class Hold(models.Model):
    """Credits set aside for work that is not finished. They are settled with the real cost, given back, or expire."""

    key = models.CharField(max_length=100)
    balance = models.ForeignKey(Balance, on_delete=models.PROTECT, db_index=False, related_name="holds")
    amount = CreditsField()
    expires_at = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="hold_not_negative"),
            models.UniqueConstraint(fields=["balance", "key"], name="hold_once_by_key"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} for {self.key}"


# Columns that a quota and its default have in common.
QUOTA_FIELDS = ("quota_limit", "overdraft", "on_overdraft_action", "notification_thresholds")


class QuotaDefault(models.Model):
    """Quota that each namespace of an account gets for a service when it first spends there, if `auto_apply`."""

    account_id = models.CharField(max_length=24)
    service = models.CharField(max_length=SERVICE_LENGTH, choices=Service.choices)
    quota_limit = CreditsField()
    overdraft = CreditsField(default=Decimal(0))
    on_overdraft_action = models.CharField(
        max_length=16, choices=OverdraftAction.choices, default=OverdraftAction.BLOCK
    )
    notification_thresholds = models.JSONField(default=list)
    auto_apply = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account_id", "service"], name="one_default_for_a_service")]

    def __str__(self) -> str:
        return f"{self.service} of {self.account_id}"


class CheckedBalance(models.Model):
    """State of a balance at the last check that found nothing: the next night continues from there.

    `entry_id`: its newest entry then, 0 without one. `used`: the balance after that entry. `day`: its newest day of
    spending then. `spent`: the credits of that day and later ones.
    """

    balance = models.OneToOneField(Balance, on_delete=models.PROTECT, primary_key=True, related_name="checked")
    entry_id = models.BigIntegerField()
    used = CreditsField()
    day = models.DateField(null=True)
    spent = CreditsField()

    def __str__(self) -> str:
        return f"{self.balance_id} up to {self.entry_id}"


class LedgerCheck(models.Model):
    """Result of one run of the ledger's check, by `manage.py ledger_check` or by beat. For beat, `night` is the UTC
    date.

    `finished_at` null: it is running, or its process died. `differences` null: it did not come to its end. `sentences`:
    the first differences, or the error. `is_full`: everything was read, not only what is new since the last check that
    found nothing.
    """

    night = models.DateField(null=True, unique=True, editable=False)
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    seconds = models.FloatField(null=True)
    entries = models.BigIntegerField(default=0)
    records = models.BigIntegerField(default=0)
    balances = models.BigIntegerField(default=0)
    differences = models.PositiveIntegerField(null=True)
    sentences = models.JSONField(default=list)
    is_full = models.BooleanField(default=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M}: {self.differences}"
