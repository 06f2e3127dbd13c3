"""Warm machines: ready before anybody asks for them, and the creates from which their number follows."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from vmbackend.models import Host
from workspaces.models.workspace import new_workspace_id


class WarmState(models.TextChoices):
    """State of a machine of the pool. A create takes one that is `ready`, which removes its row."""

    MAKING = "making"
    READY = "ready"  # a command ran in it, and it is paused
    RETIRING = "retiring"  # for good: its host removes the machine, then the row


class WarmShape(models.Model):
    """Columns that a create and a warm machine must have in common. Sizes as of `Workspace`."""

    image = models.CharField(max_length=512)  # the reference in its full form
    cpu_millis = models.PositiveIntegerField()
    memory_mb = models.PositiveIntegerField()
    disk_size_mb = models.PositiveIntegerField()

    class Meta:
        abstract = True


class WarmMachine(WarmShape):
    """A machine that belongs to nobody yet. It has the id and the address of the workspace that it will be.

    Written by `workspaces.warm_machines` only. A machine belongs to a row here or to a workspace's row of the same id,
    never to both: the create's transaction replaces the one by the other.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_workspace_id, editable=False)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="warm_machines")
    ip = models.GenericIPAddressField(protocol="IPv4")
    image_digest = models.CharField(max_length=80)
    kit = models.CharField(max_length=80, blank=True, default="")
    state = models.CharField(max_length=16, choices=WarmState.choices, default=WarmState.MAKING)
    claim = models.CharField(max_length=32)  # of the process that makes it
    ssh_host_key = models.TextField(blank=True, default="")
    control_port = models.PositiveIntegerField(default=0)
    # The counters of its process when it was paused: usage of the workspace begins there.
    counters = models.JSONField(default=dict)
    # When the image's tag had this digest last.
    checked_at = models.DateTimeField(default=timezone.now)
    made_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "ip"], name="warm_machine_address")]

    def __str__(self) -> str:
        return f"{self.image} ({self.id})"


class WarmRequest(WarmShape):
    """A create that a warm machine serves. Rows are added by creates, and removed when the pool is not sized by them
    any more.
    """

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="warm_requests")
    served = models.BooleanField()  # whether there was a machine
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["host", "at"], name="warm_request_of_host")]

    def __str__(self) -> str:
        return f"{self.image} at {self.at}"
