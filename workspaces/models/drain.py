"""Drains: hosts that staff have emptied or are emptying."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from vmbackend.models import Host


class Drain(models.Model):
    """The wish that a host be empty, while the host is `draining`. Written by `workspaces.moves.drains` only.

    `memory`: whether saved memory goes along. `waits`: whether running workspaces are waited for, until `deadline_at`
    if there is one, before they are moved, too. `refusals`: why workspaces could not be moved at the last look, by id.
    """

    host = models.OneToOneField(Host, primary_key=True, on_delete=models.CASCADE, related_name="drain")
    memory = models.BooleanField(default=True)
    waits = models.BooleanField(default=False)
    deadline_at = models.DateTimeField(null=True)
    actor = models.CharField(max_length=160)
    reason = models.CharField(max_length=500)
    refusals = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)
    # When nothing was left on the host.
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"drain of {self.host_id}"
