"""Reading API keys, as far as an actor reaches; and finding the one that a request carries."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.actors import Actor
from accounts.scopes import Scope
from assist.models import ApiKey
from common.errors import NotFound
from common.secrets_at_rest import keyed_hashes
from namespaces.models import Namespace


def visible_keys(actor: Actor) -> QuerySet[ApiKey]:
    """Return the keys of the account, or of the namespace that the credential is bound to; newest first."""
    found = ApiKey.objects.filter(account=actor.account).select_related("namespace")
    return found.filter(namespace_id=actor.namespace_id) if actor.scope is Scope.NAMESPACE else found


def get_key(actor: Actor, key_id: str) -> ApiKey:
    """Return a key that the actor reaches. Raise NotFound."""
    found = visible_keys(actor).filter(pk=key_id).first()
    if found is None:
        raise NotFound("There is no such API key.")
    return found


def key_of_secret(secret: str) -> ApiKey | None:
    """Return the key with its account and plan, or None if the secret is unknown or its account is inactive. One query.

    The key is found by its hash, so that the time does not show how near a guess is.
    """
    rows = ApiKey.objects.select_related("account__plan", "namespace").order_by()
    return rows.filter(key_hash__in=keyed_hashes(secret), account__is_active=True).first()


def paying_namespace(key: ApiKey) -> Namespace:
    """Return the namespace of the key; if it has none, the account's default namespace."""
    if key.namespace is not None:
        return key.namespace
    return Namespace.objects.get(account=key.account, is_default=True)
