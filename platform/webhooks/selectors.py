"""Reading webhooks, as far as an actor reaches: all of the account, or those of the namespace of its credential."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.actors import Actor
from accounts.hooks import namespace_binding
from accounts.permissions import require_named_namespace
from accounts.scopes import Scope, ScopeBinding
from common.errors import NotFound
from webhooks.models import Delivery, Subscription
from webhooks.subscriptions import listed_subscriptions


def visible_subscriptions(actor: Actor, namespace: ScopeBinding | None = None) -> QuerySet[Subscription]:
    """Return the subscriptions, newest first; with a namespace, only those of it."""
    found = listed_subscriptions().filter(account=actor.account).order_by("-created_at", "-pk")
    if actor.scope is Scope.NAMESPACE:
        found = found.filter(namespace_id=actor.namespace_id)
    return found.filter(namespace_id=namespace.namespace_id) if namespace is not None else found


def get_subscription(actor: Actor, public_id: int) -> Subscription:
    """Raise NotFound."""
    found = visible_subscriptions(actor).filter(public_id=public_id).first()
    if found is None:
        raise NotFound("There is no such webhook.")
    return found


def requested_namespace(actor: Actor, slug: str | None) -> ScopeBinding | None:
    """Return the namespace that a request is about: the one named, or that of the credential; None: the whole account.

    Raise NotFound, Forbidden (the credential is bound to another).
    """
    if actor.scope is Scope.NAMESPACE:
        require_named_namespace(actor, slug)
        return ScopeBinding(namespace_id=actor.namespace_id, namespace_slug=actor.namespace_slug)
    return namespace_binding.one(actor.account, slug) if slug is not None else None


def listed_deliveries(subscription: Subscription, *, status: str = "") -> QuerySet[Delivery]:
    """Return the deliveries of a webhook, newest first, without what was sent."""
    found = Delivery.objects.filter(subscription=subscription).select_related("event").defer("event__data")
    return (found.filter(status=status) if status else found).order_by("-pk")


def get_delivery(actor: Actor, delivery_id: str) -> Delivery:
    """Raise NotFound."""
    reached = visible_subscriptions(actor).values("pk")
    found = Delivery.objects.filter(pk=delivery_id, subscription__in=reached)
    delivery = found.select_related("event", "subscription").defer("event__data").first()
    if delivery is None:
        raise NotFound("There is no such delivery.")
    return delivery
