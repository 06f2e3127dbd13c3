"""The audit log of workspaces."""

from __future__ import annotations

from django.db import models

from accounts.audit import AccountEvent


class Activity(AccountEvent):
    """One entry of the audit log of a workspace (specification, Usage and activity)."""

    subject_field = "workspace_id"

    workspace_id = models.CharField(max_length=24)

    class Meta(AccountEvent.Meta):
        verbose_name_plural = "activity"
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["workspace_id", "-id"], name="activity_of_workspace"),
            # For the windows that owners read.
            models.Index(fields=["account", "created_at"], name="activity_of_window"),
        ]
