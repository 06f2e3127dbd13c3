"""Reading namespaces, as far as an actor reaches."""

from __future__ import annotations

from accounts.hooks import Pin
from accounts.models import Account
from accounts.scopes import Actor, Scope
from common.errors import Forbidden, NamespaceSuspended, NotFound, QuotaExceeded
from namespaces.models import Namespace, Status


def by_slug(account: Account, slug: str) -> Namespace:
    """Raises NotFound; a namespace is never made silently."""
    found = Namespace.objects.filter(account=account, slug=slug).first()
    if found is None:
        raise NotFound(f"There is no namespace {slug!r}.")
    return found


def pin(account: Account, slug: str) -> Pin:
    """What a namespace-scope credential is held to."""
    found = by_slug(account, slug)
    return Pin(namespace_id=found.id, namespace_slug=found.slug)


def for_create(actor: Actor, slug: str | None) -> Namespace:
    """The namespace a new resource goes into: the one named, the pinned one, or the account's default.

    Raises NotFound, Forbidden (a pinned credential that names another), NamespaceSuspended, QuotaExceeded.
    """
    if actor.scope is Scope.NAMESPACE:
        if slug is not None and slug != actor.namespace_slug:
            raise Forbidden("This credential is pinned to another namespace.")
        found = Namespace.objects.filter(account=actor.account, id=actor.namespace_id).first()
        if found is None:
            raise NotFound("The namespace of this credential is gone.")
    elif slug is None:
        found = Namespace.objects.get(account=actor.account, is_default=True)
    else:
        found = by_slug(actor.account, slug)
    require_open(found)
    return found


def require_open(namespace: Namespace) -> None:
    """Whether machines may be made or started here. Raises NamespaceSuspended (by hand), QuotaExceeded (by quota)."""
    if namespace.suspended_by_hand or (namespace.status == Status.SUSPENDED and not namespace.suspended_by_quota):
        raise NamespaceSuspended(f"The namespace {namespace.slug!r} is suspended.")
    if namespace.suspended_by_quota:
        raise QuotaExceeded(f"The quota of the namespace {namespace.slug!r} is used up.")
