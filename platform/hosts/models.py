"""Tokens with which machines join. Written by `hosts.services` only."""

from __future__ import annotations

from django.db import models

from common.ids import new_id
from vmbackend.models import Host


def new_token_id() -> str:
    return new_id("joi")


class JoinToken(models.Model):
    """The right of one machine to join, until `expires_at`. Stored as a keyed hash.

    The machine that used it is `machine_id`, and has become `host`: within the time it may ask again, as after a join
    that died. `name`: of the host; empty: the machine's own. A token may be made for a host that there is: the machine
    becomes that one.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_token_id, editable=False)
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    name = models.CharField(max_length=40, blank=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)
    machine_id = models.CharField(max_length=64, blank=True, default="")
    host = models.ForeignKey(Host, on_delete=models.SET_NULL, null=True, related_name="join_tokens")

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.id
