"""The only writers of namespaces."""

from __future__ import annotations

from accounts.models import Account
from namespaces.models import Namespace, Type

DEFAULT_SLUG = "default"


def default_namespace_create(account: Account) -> None:
    """Every account's first namespace; runs in the transaction that makes the account."""
    Namespace.objects.create(account=account, name="Default", slug=DEFAULT_SLUG, type=Type.DEFAULT, is_default=True)
