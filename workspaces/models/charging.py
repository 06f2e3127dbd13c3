"""Position up to which metering records were charged, and the sums of charged records for reports."""

from __future__ import annotations

from decimal import Decimal

from django.db import models
from django.db.models import Q

from common.times import from_epoch
from credits.amounts import CreditsField


class BillingCycle(models.Model):
    """A time after which `credits.usage` is sent for the usage that was charged in it. `start`, `end`: seconds since
    1970.

    `reported_id` is the last of its `CycleUsage` rows that was reported, in the transaction that published its event;
    `workspaces` and `credits` are sums of the reported rows.
    """

    start = models.BigIntegerField()
    end = models.BigIntegerField()
    reported_id = models.BigIntegerField(default=0)
    workspaces = models.PositiveIntegerField(default=0)
    credits = CreditsField(default=Decimal(0))
    closed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-start"]
        # Rows that the task that closes cycles looks for; nearly always one.
        indexes = [models.Index(fields=["id"], condition=Q(closed_at=None), name="cycle_unclosed")]

    def __str__(self) -> str:
        return f"{from_epoch(self.start):%Y-%m-%d %H:%M:%S}"


class ChargePosition(models.Model):
    """Position of charging; one row. Records up to `record_id` are charged, in the transaction that wrote it. Records
    up to `first_record_id` were made before charging began and are never charged.

    `counted_from`: current charges count in reports at this time or later (microseconds). `cycle`: current charges add
    to it until `cycle_end` (seconds); null: it is sealed, and the next one is not made yet. `first_cycle_entry_id`:
    entries up to it are in no cycle.
    """

    first_record_id = models.BigIntegerField(default=0)
    record_id = models.BigIntegerField(default=0)
    counted_from = models.BigIntegerField(default=0)
    cycle = models.ForeignKey(BillingCycle, on_delete=models.PROTECT, null=True, db_index=False, related_name="+")
    cycle_end = models.BigIntegerField(default=0)
    first_cycle_entry_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"up to {self.record_id}"


class CheckPosition(models.Model):
    """Position up to which the last check of the ledger without findings has read; one row (`CheckedBalance` is of the
    same check).

    `record_id`: the last record that was charged then. `begin`: the hour (seconds) from which on sums may still have
    grown since; a record that counts in it or later comes after `hour_record_id`. `cycle_number`: cycles up to it were
    closed; `open_credits`: the sum of the later cycles and of the amounts not reported yet.
    """

    record_id = models.BigIntegerField()
    begin = models.BigIntegerField()
    hour_record_id = models.BigIntegerField()
    cycle_number = models.BigIntegerField()
    open_credits = CreditsField()

    def __str__(self) -> str:
        return f"up to {self.record_id}"


class ChargedSums(models.Model):
    """Sums of charged metering records. Amounts as in `MeterRecord`."""

    records = models.BigIntegerField()
    cpu_time_ns = models.BigIntegerField()
    memory_mb_ms = models.BigIntegerField()
    disk_bytes = models.BigIntegerField()
    network_bytes = models.BigIntegerField()
    credits = CreditsField()

    class Meta:
        abstract = True


class NamespaceHour(ChargedSums):
    """Sums that were charged for a namespace in one hour. `start` is in seconds since 1970."""

    namespace_id = models.CharField(max_length=24)
    start = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace_id", "start"], name="namespace_hour_once")]

    def __str__(self) -> str:
        return f"{self.namespace_id} at {self.start}"


class NamespaceMinute(ChargedSums):
    """Sums of one minute, for the ends of a report that lie inside an hour."""

    namespace_id = models.CharField(max_length=24)
    start = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace_id", "start"], name="namespace_minute_once")]

    def __str__(self) -> str:
        return f"{self.namespace_id} at {self.start}"


class NamespaceTick(ChargedSums):
    """Sums of one time at which records count (`tick`, microseconds since 1970), for the ends of a report that lie
    inside a minute. All machines of a host are metered at the same time, so there are about as many rows as minutes.
    """

    namespace_id = models.CharField(max_length=24)
    tick = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace_id", "tick"], name="namespace_tick_once")]

    def __str__(self) -> str:
        return f"{self.namespace_id} at {self.tick}"


class WorkspaceHour(ChargedSums):
    """Sums that were charged for a workspace in a namespace in one hour. `start` is in seconds since 1970."""

    metered = models.ForeignKey(
        "workspaces.Metered", on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="hours"
    )
    start = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["metered", "start"], name="workspace_hour_once")]

    def __str__(self) -> str:
        return f"{self.metered_id} at {self.start}"


class CycleUsage(ChargedSums):
    """Sums that were charged for a workspace in a namespace in a billing cycle. Deleted when they are reported."""

    cycle = models.ForeignKey(BillingCycle, on_delete=models.PROTECT, db_index=False, related_name="usage")
    metered = models.ForeignKey(
        "workspaces.Metered", on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )

    class Meta:
        verbose_name_plural = "cycle usage"
        constraints = [models.UniqueConstraint(fields=["cycle", "metered"], name="cycle_usage_once")]

    def __str__(self) -> str:
        return f"{self.metered_id} in {self.cycle_id}"


class LateRecord(models.Model):
    """A metering record that was charged so late that it counts in reports as if it had been metered at `counted_at`
    (microseconds since 1970): a report of a time that is over does not change.
    """

    record = models.OneToOneField("workspaces.MeterRecord", on_delete=models.PROTECT, primary_key=True)
    namespace_id = models.CharField(max_length=24)
    counted_at = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["namespace_id", "counted_at"], name="late_records")]

    def __str__(self) -> str:
        return f"{self.record_id} at {self.counted_at}"
