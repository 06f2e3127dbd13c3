"""The sandbox row, its former tokens, those of staff and its audit entries. Written by `sandboxes.services` only."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from accounts.audit import AccountEvent
from workspaces.models import Workspace


class Sandbox(models.Model):
    """The part of a sandbox beside its workspace's row: a token, of which only the keyed hash is stored.

    Its id has the suffix of the workspace's: `sbx_x` is the sandbox of `ws_x`. It is deleted with that row.
    """

    id = models.CharField(primary_key=True, max_length=24, editable=False)
    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, related_name="sandbox")
    token_hash = models.CharField(max_length=64, unique=True)
    token_changed_at = models.DateTimeField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name_plural = "sandboxes"

    def __str__(self) -> str:
        return self.id


class FormerToken(models.Model):
    """The keyed hash of a token that was replaced. Its bearer is refused with 403, that of an unknown one with 401."""

    token_hash = models.CharField(primary_key=True, max_length=64)
    sandbox = models.ForeignKey(Sandbox, on_delete=models.CASCADE, related_name="former_tokens")
    replaced_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"former token of {self.sandbox_id}"


class StaffToken(models.Model):
    """The keyed hash of a token by which one member of the staff opens terminals of one machine, until `expires_at`:
    that of a sandbox, or a plain workspace.

    The owner's token is not touched by it. It ends with the workspace, and if its user is no active staff any more.
    """

    token_hash = models.CharField(primary_key=True, max_length=64)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"token of {self.user_id} for {self.workspace_id}"


class SandboxEvent(AccountEvent):
    """An audit entry of a sandbox."""

    subject_field = "sandbox_id"

    sandbox_id = models.CharField(max_length=24)

    class Meta(AccountEvent.Meta):
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["sandbox_id", "-id"], name="sandboxevent_of_sandbox"),
        ]
