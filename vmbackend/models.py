"""The hosts that run machines."""

from __future__ import annotations

import base64
import secrets
from datetime import timedelta

from django.db import models
from django.db.models import QuerySet
from django.utils import timezone

ALIVE_FOR = timedelta(seconds=45)  # after the last report of a host's vmhost


def queue_of_host(host_id: str) -> str:
    """Return the Celery queue that only this host's vmhost consumes."""
    return f"host.{host_id}"


def new_host_id() -> str:
    """Return a fresh id: `host_` and 16 base32 characters."""
    return f"host_{base64.b32encode(secrets.token_bytes(10)).decode().lower()}"


class Host(models.Model):
    """A physical or virtual server with a `vmhost` process, which keeps this row current. The id is for good: queue,
    operations and machines go by it, and a name may change.

    Sizes are MiB; the free ones are what remains after the host's reserve. `cpus` counts logical CPUs. `subnet` is the
    IPv4 network of its machines. `address` is the IPv4 address at which the platform's other machines reach this one; a
    host without one is alone. `arch` as in OCI (amd64, arm64). The database keeps what is promised, and nothing else
    writes it (`workspaces.promised`). A host takes new machines while `accepts_new` is set and `is_alive`. Rows are
    never deleted automatically: those of a host that is gone stop being alive after ALIVE_FOR.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_host_id, editable=False)
    name = models.SlugField(unique=True, max_length=40)
    accepts_new = models.BooleanField(default=True, help_text="Whether new workspaces may be placed here.")
    subnet = models.CharField(max_length=20)
    address = models.CharField(max_length=15, blank=True, default="", help_text="For other hosts; empty: it is alone.")
    arch = models.CharField(max_length=16, default="amd64")
    accelerated = models.BooleanField(default=False, help_text="KVM; otherwise the machines are emulated.")
    cpus = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    memory_free_mb = models.PositiveIntegerField(default=0)
    disk_mb = models.PositiveBigIntegerField(default=0)
    disk_free_mb = models.PositiveBigIntegerField(default=0)
    snapshots = models.BooleanField(default=True, help_text="Whether machines can sleep with their memory on disk.")
    # What its workspaces were promised: memory of those in the running pool, disk of all that have a machine.
    memory_promised_mb = models.BigIntegerField(default=0, db_default=0, editable=False)
    disk_promised_mb = models.BigIntegerField(default=0, db_default=0, editable=False)
    machines_running = models.IntegerField(default=0, db_default=0, editable=False)
    machines_sleeping = models.IntegerField(default=0, db_default=0, editable=False)
    machines_stopped = models.IntegerField(default=0, db_default=0, editable=False)
    # Given by staff, for `placement` of creates: strings by name, and what fails together.
    labels = models.JSONField(default=dict, blank=True)
    zone = models.CharField(max_length=63, blank=True, default="")
    # References of the images that are ready there.
    images = models.JSONField(default=list, blank=True)
    # The claim of the machine that has the name: `vmbackend.host_claim`. It holds while the host reports.
    claim = models.CharField(max_length=80, blank=True, default="", db_default="", editable=False)
    # As `vmbackend.driver.BootTemplate` has them.
    templates = models.JSONField(default=list, blank=True)
    # As `vmbackend.capabilities.HostCapabilities` has them.
    capabilities = models.JSONField(default=dict, blank=True)
    # A list of `workspaces.host.pool.demand.PoolShare`, as objects.
    pool = models.JSONField(default=list, blank=True)
    # A list of `vmbackend.orphans.KeptOrphan`, as objects.
    orphans = models.JSONField(default=list, blank=True)
    boot_id = models.CharField(max_length=40, blank=True, default="", help_text="Changes when the host is booted.")
    last_seen_at = models.DateTimeField(null=True)
    load = models.FloatField(null=True, help_text="Processes that ran or wanted to, averaged over a minute.")
    version = models.CharField(max_length=40, blank=True, default="", help_text="Of the platform on the host.")
    problem = models.TextField(
        blank=True, default="", help_text="Why the hypervisor does not answer; empty if it does."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def queue(self) -> str:
        """Return the Celery queue that only this host's vmhost consumes."""
        return queue_of_host(self.pk)

    @property
    def is_alive(self) -> bool:
        """Return whether its vmhost reported within ALIVE_FOR and its hypervisor answers."""
        return bool(self.last_seen_at and timezone.now() - self.last_seen_at < ALIVE_FOR and not self.problem)


def taking_new() -> QuerySet[Host]:
    """Return the hosts that take new machines now. A row that is locked by it is judged as it is under the lock."""
    return Host.objects.filter(problem="", accepts_new=True, last_seen_at__gt=timezone.now() - ALIVE_FOR)
