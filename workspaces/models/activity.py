"""What happened to a workspace, in sentences. Outlives the workspace, so it holds its id and no foreign key."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from accounts.models import Account


class Activity(models.Model):
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    workspace_id = models.CharField(max_length=24)
    at = models.DateTimeField(default=timezone.now)
    event = models.CharField(max_length=40)
    actor = models.CharField(max_length=160, blank=True, default="")
    detail = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "activity"
        indexes = [
            models.Index(fields=["account", "at"], name="activity_by_account"),
            models.Index(fields=["workspace_id", "at"], name="activity_by_workspace"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.workspace_id}"
