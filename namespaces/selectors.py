"""Queries of namespaces, restricted to what an actor reaches."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from accounts.actors import Actor
from accounts.models import Account
from accounts.scopes import Scope, ScopeBinding
from common.errors import Forbidden, NamespaceSuspended, NotFound, QuotaExceeded
from namespaces.models import Namespace, Status


def visible_namespaces(actor: Actor) -> QuerySet[Namespace]:
    """The namespaces of the account, or the one that the credential is bound to."""
    found = Namespace.objects.filter(account=actor.account)
    return found.filter(pk=actor.namespace_id) if actor.scope in (Scope.NAMESPACE, Scope.WORKSPACE) else found


def get_namespace(actor: Actor, identifier: str) -> Namespace:
    """By id or slug. Raises NotFound, also for one that the actor does not reach."""
    by = Q(pk=identifier) if identifier.startswith("ns_") else Q(slug=identifier)
    found = visible_namespaces(actor).filter(by).first()
    if found is None:
        raise NotFound(f"There is no namespace {identifier!r}.")
    return found


def by_slug(account: Account, slug: str) -> Namespace:
    """Raises NotFound; a namespace is never created implicitly."""
    found = Namespace.objects.filter(account=account, slug=slug).first()
    if found is None:
        raise NotFound(f"There is no namespace {slug!r}.")
    return found


def scope_binding(account: Account, slug: str) -> ScopeBinding:
    """The binding of a namespace-scope credential. Raises NotFound."""
    found = by_slug(account, slug)
    return ScopeBinding(namespace_id=found.id, namespace_slug=found.slug)


def for_create(actor: Actor, slug: str | None) -> Namespace:
    """The namespace a new resource goes into: the one named, the one the credential is bound to, or the default.

    Raises NotFound, Forbidden (the credential is bound to another), NamespaceSuspended, QuotaExceeded.
    """
    if actor.scope is Scope.NAMESPACE:
        if slug is not None and slug != actor.namespace_slug:
            raise Forbidden("This credential is bound to another namespace.")
        found = Namespace.objects.filter(account=actor.account, id=actor.namespace_id).first()
        if found is None:
            raise NotFound("The namespace of this credential no longer exists.")
    elif slug is None:
        found = Namespace.objects.get(account=actor.account, is_default=True)
    else:
        found = by_slug(actor.account, slug)
    require_open(found)
    return found


def require_open(namespace: Namespace) -> None:
    """Raises NamespaceSuspended (by hand), QuotaExceeded (by quota) where no workspace may be created or started."""
    if namespace.suspended_by_hand or (namespace.status == Status.SUSPENDED and not namespace.suspended_by_quota):
        raise NamespaceSuspended(f"The namespace {namespace.slug!r} is suspended.")
    if namespace.suspended_by_quota:
        raise QuotaExceeded(f"The quota of the namespace {namespace.slug!r} is used up.")
