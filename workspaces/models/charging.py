"""Up to which metering record credits were charged, and what reports read of those that were."""

from __future__ import annotations

from django.db import models

from credits.amounts import CreditsField


class ChargePosition(models.Model):
    """One row. Records up to `record_id` are charged, in the transaction that wrote it; those up to `first_record_id`
    were made before charging began and never are.
    """

    first_record_id = models.BigIntegerField(default=0)
    record_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"up to {self.record_id}"


class NamespaceHour(models.Model):
    """What was charged for a namespace in one hour: sums of metering records. `start`: seconds since 1970."""

    namespace_id = models.CharField(max_length=24)
    start = models.BigIntegerField()
    records = models.BigIntegerField()
    cpu_time_ns = models.BigIntegerField()
    memory_mb_ms = models.BigIntegerField()
    disk_bytes = models.BigIntegerField()
    network_bytes = models.BigIntegerField()
    credits = CreditsField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace_id", "start"], name="namespace_hour_once")]

    def __str__(self) -> str:
        return f"{self.namespace_id} at {self.start}"


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
