"""Custom domains and the names under which they are served. Written by `domains.services` and `publication`."""

from __future__ import annotations

from typing import Any

import idna
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from common.ids import new_id

NAME_LENGTH = 253
WWW = "www."
# In front of a name: where the TXT record is that proves it.
PROOF_HOST = "_platform."


def new_domain_id() -> str:
    return new_id("dom")


class TargetKind(models.TextChoices):
    """The kind of thing that a domain leads to."""

    PAGE = "page"
    WORKSPACE = "workspace"


class CustomDomain(models.Model):
    """The domain of a page or of a workspace's port, of which it has the plain id.

    `name` is ASCII in lower case. Several targets may claim a name; `DomainName` says which of them has it.
    `proven_at`: when the TXT record of this target was last asked for and found; null: an unproven claim.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_domain_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="custom_domains")
    name = models.CharField(max_length=NAME_LENGTH, db_index=True)
    target_kind = models.CharField(max_length=16, choices=TargetKind.choices)
    target_id = models.CharField(max_length=24)
    port = models.PositiveIntegerField(null=True)
    include_www = models.BooleanField(default=False)
    proven_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["target_kind", "target_id"], name="one_domain_per_target"),
            models.CheckConstraint(
                condition=Q(target_kind=TargetKind.PAGE, port__isnull=True)
                | Q(target_kind=TargetKind.WORKSPACE, port__gte=1, port__lte=65535),
                name="custom_domain_port_of_a_workspace",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> list[str]:
        """Return the names that the domain claims, itself first."""
        return [self.name, WWW + self.name] if self.include_www else [self.name]

    @property
    def shown_name(self) -> str:
        """With the letters that its ASCII form stands for."""
        return shown_name(self.name)


def shown_name(name: str) -> str:
    try:
        return idna.decode(name)
    except idna.IDNAError:  # of a later version of Unicode than this one
        return name


class DomainName(models.Model):
    """The holder of a name. At most one domain has a name, and its target is served under the name while this row says
    so.

    `domain` null: no domain has the name any more; the row goes with its file. `is_stale`: the file does not follow the
    row yet (`publication`).
    """

    name = models.CharField(primary_key=True, max_length=NAME_LENGTH)
    domain: Any = models.ForeignKey(CustomDomain, on_delete=models.SET_NULL, null=True, related_name="held")
    is_stale = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]
        indexes = [models.Index(fields=["name"], condition=Q(is_stale=True), name="domain_name_stale")]

    def __str__(self) -> str:
        return self.name
