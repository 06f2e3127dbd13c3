"""Public ports: ports of a workspace with a public address of their own."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from common.ids import random_suffix
from edge.addresses import HASH_LENGTH, label, public_address
from workspaces.models.workspace import Workspace


def new_hash() -> str:
    """Return 100 random bits, so that addresses cannot be guessed."""
    return random_suffix(HASH_LENGTH)


class Access(models.TextChoices):
    """The visitors who may open a public port: all, or those who have a link to it (`PortLink`)."""

    PUBLIC = "public"
    PRIVATE = "private"


class PublicPort(models.Model):
    """A port with a public address (specification, Networking). Deleted with its workspace; outlives its machine.

    `hash` identifies the port in both of its names, `<hash>` and `<slug>-<hash>`; `slug` and `label` are the owner's.
    `Workspace.published_ports` counts these rows. While they exist, the route cache may hold them for up to a second.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="public_ports")
    # The workspace's account, as in an operation.
    account_id = models.CharField(max_length=24, default="", db_default="", editable=False)
    port = models.PositiveIntegerField()
    hash = models.CharField(max_length=32, unique=True, default=new_hash, editable=False)
    label = models.CharField(max_length=100, blank=True, default="")
    slug = models.CharField(max_length=42, blank=True, default="")
    access = models.CharField(max_length=8, choices=Access.choices, default=Access.PUBLIC)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["port"]
        constraints = [
            models.UniqueConstraint(fields=["workspace", "port"], name="public_port_once_per_workspace"),
            models.CheckConstraint(condition=models.Q(port__gte=1, port__lte=65535), name="public_port_is_a_port"),
        ]
        indexes = [models.Index(fields=["account_id", "-id"], name="public_port_of_account")]

    @property
    def url(self) -> str:
        """Return its address, without a slash at its end."""
        return public_address(settings.PUBLIC_URL).url(label(self.slug, self.hash))

    @property
    def is_private(self) -> bool:
        return self.access == Access.PRIVATE

    def __str__(self) -> str:
        return f"{self.workspace_id}:{self.port}"
