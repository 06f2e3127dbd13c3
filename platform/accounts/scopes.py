"""Scopes of credentials, and the actor that a request is made by (wire contract, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from accounts.models import Account


class Scope(models.TextChoices):
    """`account`: everything; `namespace`, `workspace`: pinned to one; `billing`: credits and namespace usage."""

    ACCOUNT = "account"
    NAMESPACE = "namespace"
    WORKSPACE = "workspace"
    BILLING = "billing"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a request and how far it reaches. `via` is `credential` or `token`.

    `expires`: seconds since the epoch at which the token ends; 0 for a credential.
    """

    account: Account
    scope: Scope
    credential_id: str
    label: str
    namespace_id: str = ""
    namespace_slug: str = ""
    workspace_id: str = ""
    epoch: int = 1
    via: str = "credential"
    expires: int = 0

    @property
    def is_authenticated(self) -> bool:
        return True
