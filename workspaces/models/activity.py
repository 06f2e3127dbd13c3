"""The audit log of workspaces."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from accounts.models import Account


class Activity(models.Model):
    """One entry of the audit log of a workspace (specification, Usage and activity).

    Only added to, by `workspaces.audit.record_activity`. `event` is a stable word for programs, `detail` a message for
    people, `actor` who caused it: a credential's label, a member of staff, or `system`. Entries outlive the workspace,
    so they hold its id and no foreign key; they are deleted with the account.
    """

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    workspace_id = models.CharField(max_length=24)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    event = models.CharField(max_length=40)
    actor = models.CharField(max_length=160, blank=True, default="")
    detail = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "activity"
        indexes = [
            models.Index(fields=["event", "-id"], name="activity_by_event"),
            models.Index(fields=["actor", "-id"], name="activity_by_actor"),
            models.Index(fields=["account", "at"], name="activity_by_account"),
            models.Index(fields=["workspace_id", "-id"], name="activity_of_workspace"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.workspace_id}"
