"""Scopes of credentials and what they are bound to (wire contract, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models


class Scope(models.TextChoices):
    """The reach of a credential or access token.

    `account`: everything of the account. `namespace`, `workspace`: one of them, by a scope binding. `billing`: credits
    and the usage of namespaces.
    """

    ACCOUNT = "account"
    NAMESPACE = "namespace"
    WORKSPACE = "workspace"
    BILLING = "billing"


@dataclass(frozen=True, slots=True)
class ScopeBinding:
    """The namespace or workspace that a scope is bound to; all empty for the scopes `account` and `billing`."""

    namespace_id: str = ""
    namespace_slug: str = ""
    workspace_id: str = ""
