"""Tokens with which programs of staff use the API. Written by `staff.api_tokens` only."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from common.ids import new_id


def new_token_id() -> str:
    return new_id("stt")


class StaffToken(models.Model):
    """A token of a user of the admin, stored as a keyed hash. It ends with the user, or at `expires_at`.

    `can`: what it is for, such as `hosts.read`; its user must be allowed that, too, at each use.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_token_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    can = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.id
