"""A port of a workspace that anybody reaches at an address of its own."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from common.ids import random_suffix
from edge.address import HASH_LENGTH
from workspaces.models.workspace import Workspace


def new_hash() -> str:
    """100 random bits: nobody finds an address by trying."""
    return random_suffix(HASH_LENGTH)


class PublicPort(models.Model):
    """It goes with its workspace, and outlives its machine. The hash alone decides which port a name means."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="public_ports")
    port = models.PositiveIntegerField()
    hash = models.CharField(max_length=32, unique=True, default=new_hash, editable=False)
    label = models.CharField(max_length=100, blank=True, default="")
    slug = models.CharField(max_length=42, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["port"]
        constraints = [
            models.UniqueConstraint(fields=["workspace", "port"], name="public_port_once_per_workspace"),
            models.CheckConstraint(condition=models.Q(port__gte=1, port__lte=65535), name="public_port_is_a_port"),
        ]

    def __str__(self) -> str:
        return f"{self.workspace_id}:{self.port}"
