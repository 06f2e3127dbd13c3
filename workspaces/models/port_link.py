"""Links to private ports: secrets by which visitors open one port of a workspace."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from common.ids import new_id
from workspaces.models.public_port import PublicPort


def new_link_id() -> str:
    return new_id("lnk")


class PortLink(models.Model):
    """The keyed hash of a secret by which visitors open one private port, until `expires_at`. Deleted with its port.

    A link that is revoked has expired, too: the sweep ends its connections, also if the process that revoked it dies
    before, and removes its row.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_link_id, editable=False)
    port = models.ForeignKey(PublicPort, on_delete=models.CASCADE, related_name="links")
    # The workspace's account, as in a public port.
    account_id = models.CharField(max_length=24, default="", db_default="", editable=False)
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    label = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    last_used_at = models.DateTimeField(null=True, editable=False)
    # The address with the secret, of a link that was just made. It is not stored.
    url: str | None = None

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["account_id", "-id"], name="port_link_of_account")]

    def __str__(self) -> str:
        return self.label or self.pk
