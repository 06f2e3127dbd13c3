"""The hosts that machines run on."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.utils import timezone

ALIVE_FOR = timedelta(seconds=45)


class Host(models.Model):
    """One machine with a `vmhost` process. Its row is kept current by that process; memory and disk in MiB."""

    name = models.SlugField(primary_key=True, max_length=40)
    accepts_new = models.BooleanField(default=True, help_text="Whether new workspaces may be placed here.")
    subnet = models.CharField(max_length=20)
    arch = models.CharField(max_length=16, default="amd64")
    accelerated = models.BooleanField(default=False, help_text="KVM; otherwise the machines are emulated.")
    cpus = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    memory_free_mb = models.PositiveIntegerField(default=0)
    disk_mb = models.PositiveBigIntegerField(default=0)
    disk_free_mb = models.PositiveBigIntegerField(default=0)
    snapshots = models.BooleanField(default=True, help_text="Whether machines can sleep with their memory on disk.")
    boot_id = models.CharField(max_length=40, blank=True, default="", help_text="Changes when the host is booted.")
    last_seen_at = models.DateTimeField(null=True)
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
        """The Celery queue that only this host's vmhost consumes."""
        return f"host.{self.name}"

    @property
    def is_alive(self) -> bool:
        """Whether its vmhost has been heard lately and its hypervisor answers."""
        return bool(self.last_seen_at and timezone.now() - self.last_seen_at < ALIVE_FOR and not self.problem)
