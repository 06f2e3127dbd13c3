"""Usage: totals and the counters they are based on, tiers 2 to 5 of the series, and metering records for billing.

Written by `workspaces.usage` and `host.metering` only. Amounts are whole numbers, so that sums are exact.
"""

from __future__ import annotations

from decimal import Decimal

from django.db import models

from credits.services import Units
from workspaces.models.workspace import Workspace

NS_PER_MINUTE = 60_000_000_000
MB_MS_PER_GB_MINUTE = 1024 * 60_000
GB = 1_000_000_000


class Usage(models.Model):
    """One workspace's totals (specification, Usage objects): nanoseconds of CPU time, and bytes.

    Usage is counted up to the counters and to `generation`, which identifies the machine's process. If a vmhost died
    before it wrote, the next one counts the rest as the difference to them.

    `shown_*` are the highest totals that were returned to a reader: they include unwritten usage, which may be lost,
    and totals never decrease.
    """

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, related_name="usage")
    tracking = models.BooleanField(default=True)
    # Incremented when the owner deletes the usage: measurements with an older number are dropped.
    reset_count = models.PositiveIntegerField(default=0)

    total_cpu_time_ns = models.BigIntegerField(default=0)
    total_disk_read = models.BigIntegerField(default=0)
    total_disk_write = models.BigIntegerField(default=0)
    total_net_rx = models.BigIntegerField(default=0)
    total_net_tx = models.BigIntegerField(default=0)

    shown_cpu_time_ns = models.BigIntegerField(default=0)
    shown_disk_read = models.BigIntegerField(default=0)
    shown_disk_write = models.BigIntegerField(default=0)
    shown_net_rx = models.BigIntegerField(default=0)
    shown_net_tx = models.BigIntegerField(default=0)

    generation = models.CharField(max_length=64, blank=True, default="")
    cpu_time_ns = models.BigIntegerField(default=0)
    disk_read_bytes = models.BigIntegerField(default=0)
    disk_write_bytes = models.BigIntegerField(default=0)
    net_rx_bytes = models.BigIntegerField(default=0)
    net_tx_bytes = models.BigIntegerField(default=0)
    # The metering tick that wrote the row last, so that a repeated write counts once.
    tick = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "usage"

    def __str__(self) -> str:
        return f"usage of {self.workspace_id}"


class UsagePoint(models.Model):
    """Usage of one workspace in one bucket of a tier (2 to 5; specification, Usage objects).

    Every column is a sum over the bucket, so buckets add up to those of coarser tiers. The key begins with the time, so
    that rows written together, and rows that expire together, are stored together. A bucket without samples has no row.
    """

    # Removed by `usage.services`, or by age: deleting a workspace does not scan the table.
    usage = models.ForeignKey(
        Usage, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="points"
    )
    tier = models.PositiveSmallIntegerField()
    start = models.BigIntegerField()  # seconds since the epoch, a multiple of the tier's resolution
    observed_ms = models.BigIntegerField()
    cpu_time_ns = models.BigIntegerField()
    cpu_capacity_ns = models.BigIntegerField()  # the CPU time that was available while observed
    memory_kib_ms = models.BigIntegerField()
    disk_read_bytes = models.BigIntegerField()
    disk_write_bytes = models.BigIntegerField()
    net_rx_bytes = models.BigIntegerField()
    net_tx_bytes = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tier", "start", "usage"], name="usage_point_once")]

    def __str__(self) -> str:
        return f"tier {self.tier} at {self.start}"


class Metered(models.Model):
    """Owner of metering records: a workspace in a namespace of an account. It outlives all three.

    Records reference it by number: a thousand machines write one and a half million records in a day. The names are
    those of the first record. When a workspace is deleted, its last name is written, for later reports.
    """

    id = models.AutoField(primary_key=True)
    workspace_id = models.CharField(max_length=24)
    namespace_id = models.CharField(max_length=24, db_index=True)
    account_id = models.CharField(max_length=24)
    workspace_name = models.CharField(max_length=255, blank=True, default="")
    namespace_slug = models.CharField(max_length=128, blank=True, default="")
    # The host that writes its records with credentials of its own; empty: one that has the instance's.
    host_id = models.CharField(max_length=24, blank=True, default="", db_default="")

    class Meta:
        verbose_name_plural = "metered"
        indexes = [models.Index(fields=["account_id"], name="metered_of_account")]
        constraints = [
            models.UniqueConstraint(fields=["workspace_id", "namespace_id", "account_id"], name="one_of_each_metered")
        ]

    def __str__(self) -> str:
        return f"{self.workspace_id} in {self.namespace_id}"


class MeterRecord(models.Model):
    """Usage of one workspace in one metering tick, from which credits are charged. Rows are only added, never changed.

    Independent of tracking and of the deletion of usage; outlives the workspace. `tick` is the end of the period in
    microseconds since the epoch; (`metered`, `tick`) is unique, so that a repeated write counts once. `disk_bytes` and
    `network_bytes` are the sums of both directions.
    """

    metered = models.ForeignKey(Metered, on_delete=models.PROTECT, db_index=False, related_name="records")
    period_ms = models.PositiveIntegerField()
    tick = models.BigIntegerField(db_index=True)
    cpu_time_ns = models.BigIntegerField()
    memory_mb_ms = models.BigIntegerField()  # the machine's memory size times the time it was observed
    disk_bytes = models.BigIntegerField()
    network_bytes = models.BigIntegerField()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["metered", "tick"], name="metered_once")]

    def __str__(self) -> str:
        return self.tick_id

    @property
    def tick_id(self) -> str:
        """Return the idempotency key of the charge for this record."""
        return f"{self.metered.workspace_id}:{self.tick}"

    @property
    def units(self) -> Units:
        return units_of(self.cpu_time_ns, self.memory_mb_ms, self.disk_bytes, self.network_bytes)


def units_of(cpu_time_ns: int, memory_mb_ms: int, disk_bytes: int, network_bytes: int) -> Units:
    """Return metered amounts, of one record or summed over many, in the units that are priced; exact."""
    return Units(
        cpu_time_minutes=Decimal(cpu_time_ns) / NS_PER_MINUTE,
        memory_gb_minutes=Decimal(memory_mb_ms) / MB_MS_PER_GB_MINUTE,
        disk_io_gb=Decimal(disk_bytes) / GB,
        network_gb=Decimal(network_bytes) / GB,
    )
