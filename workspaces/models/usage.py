"""What workspaces use: totals and what they were counted from, the coarser tiers of the series, and what is billed.

Written by `workspaces.usage` only. All amounts are whole numbers, so that sums are exact.
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
    """One workspace's totals.

    Counters and `generation` (which identifies the machine's process) are those up to which use is counted: what a
    vmhost that died had not written, the next one counts as the difference to them.
    """

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, related_name="usage")
    tracking = models.BooleanField(default=True)
    # Grows when the owner deletes the usage: what was measured before belongs to an older number, and is dropped.
    reset_count = models.PositiveIntegerField(default=0)

    total_cpu_time_ns = models.BigIntegerField(default=0)
    total_disk_read = models.BigIntegerField(default=0)
    total_disk_write = models.BigIntegerField(default=0)
    total_net_rx = models.BigIntegerField(default=0)
    total_net_tx = models.BigIntegerField(default=0)

    generation = models.CharField(max_length=64, blank=True, default="")
    cpu_time_ns = models.BigIntegerField(default=0)
    disk_read_bytes = models.BigIntegerField(default=0)
    disk_write_bytes = models.BigIntegerField(default=0)
    net_rx_bytes = models.BigIntegerField(default=0)
    net_tx_bytes = models.BigIntegerField(default=0)
    # The metering tick that wrote it last; the same one never counts twice.
    tick = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "usage"

    def __str__(self) -> str:
        return f"usage of {self.workspace_id}"


class UsagePoint(models.Model):
    """What a workspace used in one bucket of a tier (2 to 5). Every column is a sum, so buckets add up to larger ones.

    The key begins with the time: what is written and what expires lies together. A reader knows all starts of a tier.
    """

    # Removed by `usage.services`, or by age: deleting a workspace does not look through the table.
    usage = models.ForeignKey(
        Usage, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="points"
    )
    tier = models.PositiveSmallIntegerField()
    start = models.BigIntegerField()  # seconds since the epoch, a multiple of the tier's resolution
    observed_ms = models.BigIntegerField()
    cpu_time_ns = models.BigIntegerField()
    cpu_capacity_ns = models.BigIntegerField()  # what its CPUs could have given meanwhile
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
    """Whose use is metered: a workspace, in a namespace of an account. Only added to; it outlives all three.

    Its records name it by number: a thousand machines make one and a half million of them in a day.
    """

    id = models.AutoField(primary_key=True)
    workspace_id = models.CharField(max_length=24)
    namespace_id = models.CharField(max_length=24)
    account_id = models.CharField(max_length=24)

    class Meta:
        verbose_name_plural = "metered"
        constraints = [
            models.UniqueConstraint(fields=["workspace_id", "namespace_id", "account_id"], name="one_of_each_metered")
        ]

    def __str__(self) -> str:
        return f"{self.workspace_id} in {self.namespace_id}"


class MeterRecord(models.Model):
    """What one workspace used in one metering tick: what credits are charged from. Only added to, never changed.

    Neither tracking nor a deletion of usage touches it, and it outlives the workspace. `tick` is the end of the period
    in microseconds since the epoch; with whose use it is, it is the id that makes twice once.
    """

    metered = models.ForeignKey(Metered, on_delete=models.PROTECT, db_index=False, related_name="records")
    period_ms = models.PositiveIntegerField()
    tick = models.BigIntegerField()
    cpu_time_ns = models.BigIntegerField()
    memory_mb_ms = models.BigIntegerField()  # of the memory that the machine has, while it was seen
    disk_bytes = models.BigIntegerField()
    network_bytes = models.BigIntegerField()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["metered", "tick"], name="metered_once")]

    def __str__(self) -> str:
        return self.tick_id

    @property
    def tick_id(self) -> str:
        """By which whoever charges knows that it has charged."""
        return f"{self.metered.workspace_id}:{self.tick}"

    @property
    def units(self) -> Units:
        return units_of(self.cpu_time_ns, self.memory_mb_ms, self.disk_bytes, self.network_bytes)


def units_of(cpu_time_ns: int, memory_mb_ms: int, disk_bytes: int, network_bytes: int) -> Units:
    """What is metered, one record's or the sum of many, in the units that are priced; exact."""
    return Units(
        cpu_time_minutes=Decimal(cpu_time_ns) / NS_PER_MINUTE,
        memory_gb_minutes=Decimal(memory_mb_ms) / MB_MS_PER_GB_MINUTE,
        disk_io_gb=Decimal(disk_bytes) / GB,
        network_gb=Decimal(network_bytes) / GB,
    )
