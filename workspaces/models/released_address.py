"""Addresses that a workspace had: edges of other hosts may still send requests to them."""

from __future__ import annotations

from django.db import models

from vmbackend.models import Host


class ReleasedAddress(models.Model):
    """An address of a host, and until when nobody gets it again. Written by the database (`workspaces.promised`).

    A row for each address at most, so nobody has to remove them.
    """

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="released_addresses")
    ip = models.GenericIPAddressField(protocol="IPv4")
    held_until = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "ip"], name="released_address_once")]

    def __str__(self) -> str:
        return f"{self.ip} until {self.held_until}"
