"""Tokens by which staff read the live numbers and the console of a workspace."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workspaces.models.workspace import Workspace


class StreamToken(models.Model):
    """The keyed hash of a token by which one member of the staff reads the event streams of one workspace, until
    `expires_at`. It ends with the workspace. It also ends if its user is no longer active staff, or may no longer get a
    token.
    """

    token_hash = models.CharField(primary_key=True, max_length=64)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="stream_tokens")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"token of {self.user_id} for {self.workspace_id}"
