"""Queries of namespaces, restricted to those that an actor reaches."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q, QuerySet

from accounts.actors import Actor
from accounts.models import Account
from accounts.permissions import require_named_namespace
from accounts.scopes import Scope, ScopeBinding
from common.errors import InvalidState, NamespaceSuspended, NotFound, QuotaExceeded
from namespaces import hooks
from namespaces.models import Namespace, NamespaceActivity, Status

STOPPED = Q(suspended_by_hand=True) | Q(quota_stops_workspaces=True)


def visible_namespaces(actor: Actor) -> QuerySet[Namespace]:
    """Return the namespaces of the account, or the one that the credential is bound to."""
    found = Namespace.objects.filter(account=actor.account, deleted_at=None)
    return found.filter(pk=actor.namespace_id) if actor.scope in (Scope.NAMESPACE, Scope.WORKSPACE) else found


def get_namespace(actor: Actor, identifier: str) -> Namespace:
    """Return a namespace by id or slug. Raise NotFound, also if the actor does not reach it."""
    by = Q(pk=identifier) if identifier.startswith("ns_") else Q(slug=identifier)
    found = visible_namespaces(actor).filter(by).first()
    if found is None:
        raise NotFound(f"There is no namespace {identifier!r}.")
    return found


def listed_namespaces(
    actor: Actor, *, sort: str, descending: bool, status: str = "", type: str = "", search: str = ""
) -> QuerySet[Namespace]:
    """Return the namespaces that the actor reaches; `search` is part of a name or slug, in any case."""
    found = visible_namespaces(actor)
    if status:
        found = found.filter(status=status)
    if type:
        found = found.filter(type=type)
    if search:
        found = found.filter(Q(name__icontains=search) | Q(slug__icontains=search))
    sign = "-" if descending else ""
    return found.order_by(f"{sign}{sort}", f"{sign}id")


def activity_of(namespace: Namespace) -> QuerySet[NamespaceActivity]:
    """Return the audit entries of a namespace, newest first."""
    return NamespaceActivity.objects.filter(namespace_id=namespace.pk).order_by("-id")


def by_slug(account: Account, slug: str) -> Namespace:
    """Return the namespace with a slug. Raise NotFound; a namespace is never created implicitly."""
    found = Namespace.objects.filter(account=account, slug=slug, deleted_at=None).first()
    if found is None:
        raise NotFound(f"There is no namespace {slug!r}.")
    return found


def slugs_of(namespace_ids: Collection[str]) -> dict[str, str]:
    """Return the slugs by id, without namespaces that are gone or are being deleted: their slugs may belong to others
    by now.
    """
    live = Namespace.objects.filter(pk__in=namespace_ids, deleted_at=None)
    return dict(live.order_by().values_list("pk", "slug"))


def scope_binding(account: Account, slug: str) -> ScopeBinding:
    """Return the binding of a namespace-scope credential. Raise NotFound."""
    found = by_slug(account, slug)
    return ScopeBinding(namespace_id=found.id, namespace_slug=found.slug)


def not_suspended_by_quota(namespace_ids: Collection[str]) -> set[str]:
    """Return the namespaces that exist and that no quota suspends now. One query; no query for no namespaces."""
    if not namespace_ids:
        return set()
    found = Namespace.objects.filter(pk__in=namespace_ids, suspended_by_quota=False)
    return set(found.values_list("pk", flat=True))


def own_namespace(actor: Actor) -> Namespace:
    """Return the namespace that a credential is bound to. Raise NotFound."""
    found = visible_namespaces(actor).first()
    if found is None:
        raise NotFound("The namespace of this credential no longer exists.")
    return found


def require_own_namespace(actor: Actor) -> None:
    """Raise NotFound if the credential is bound to a namespace that was deleted. For routes that show the account's
    objects to credentials of its namespaces.
    """
    if actor.scope is Scope.NAMESPACE:
        own_namespace(actor)


def for_create(actor: Actor, slug: str | None) -> Namespace:
    """Return the namespace of a new resource: the named one, the one that the credential is bound to, or the default
    one.

    Raise NotFound, Forbidden (the credential is bound to another), NamespaceSuspended, QuotaExceeded.
    """
    require_named_namespace(actor, slug)
    if actor.scope is Scope.NAMESPACE:
        found = own_namespace(actor)
    elif slug is None:
        found = Namespace.objects.get(account=actor.account, is_default=True)
    else:
        found = by_slug(actor.account, slug)
    require_open(found)
    return found


def stopped_namespaces() -> list[str]:
    """Return the ids of the namespaces in which nothing may run. One query on indexes of them alone."""
    return list(Namespace.objects.filter(STOPPED).order_by().values_list("pk", flat=True))


def is_stopped(namespace_id: str) -> bool:
    """Return whether nothing may run in a namespace now."""
    return Namespace.objects.filter(STOPPED, pk=namespace_id).exists()


def require_open(namespace: Namespace) -> None:
    """Raise an error if no workspace may be created or started in a namespace: NamespaceSuspended (by hand),
    QuotaExceeded (by a quota), or InvalidState (it is being deleted with its workspaces).
    """
    if namespace.deleted_at is not None:
        raise InvalidState(f"The namespace {namespace.slug!r} is being deleted, with all workspaces in it.")
    if namespace.suspended_by_hand or (namespace.status == Status.SUSPENDED and not namespace.suspended_by_quota):
        raise NamespaceSuspended(f"The namespace {namespace.slug!r} is suspended.")
    if namespace.suspended_by_quota:
        error = hooks.quota_error.one(namespace)
        raise error or QuotaExceeded(f"The quota of the namespace {namespace.slug!r} is used up.")
