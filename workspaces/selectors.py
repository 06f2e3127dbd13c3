"""Reading workspaces, as far as an actor reaches. What it does not reach does not exist for it (404)."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from accounts.hooks import Pin
from accounts.models import Account
from accounts.scopes import Actor, Scope
from common.errors import NotFound
from workspaces.models import Workspace

SENTENCE = "There is no such workspace."


def visible(actor: Actor) -> QuerySet[Workspace]:
    """Workspaces that the actor may know of, with what responses need joined in."""
    found = Workspace.objects.filter(account=actor.account).select_related("namespace", "host")
    if actor.scope is Scope.NAMESPACE:
        return found.filter(namespace_id=actor.namespace_id)
    if actor.scope is Scope.WORKSPACE:
        return found.filter(pk=actor.workspace_id)
    return found


def get(actor: Actor, identifier: str) -> Workspace:
    """By id or slug. Raises NotFound, whether it does not exist or is somebody else's."""
    by = Q(pk=identifier) if identifier.startswith("ws_") else Q(slug=identifier)
    found = visible(actor).filter(by).first()
    if found is None:
        raise NotFound(SENTENCE)
    # The actor's account is this workspace's; sparing the query that would say so again.
    found.account = actor.account
    return found


def listed(
    actor: Actor, *, mode: str = "", status: str = "", namespace: str = "", search: str = ""
) -> QuerySet[Workspace]:
    """The list's rows, newest first."""
    found = visible(actor)
    if mode:
        found = found.filter(mode=mode)
    if status:
        found = found.filter(status=status)
    if namespace:
        found = found.filter(namespace__slug=namespace)
    if search:
        found = found.filter(
            Q(name__icontains=search) | Q(slug__icontains=search) | Q(image__icontains=search) | Q(pk=search)
        )
    return found.order_by("-created_at", "-id")


def pin(account: Account, identifier: str) -> Pin:
    """What a workspace-scope credential is held to."""
    by = Q(pk=identifier) | Q(slug=identifier)
    found = Workspace.objects.filter(account=account).filter(by).select_related("namespace").first()
    if found is None:
        raise NotFound(SENTENCE)
    return Pin(namespace_id=found.namespace_id, namespace_slug=found.namespace.slug, workspace_id=found.pk)


def digests_in_use(host: str) -> set[str]:
    """Images that a workspace of this host stands on; never evicted."""
    return set(
        Workspace.objects.filter(host_id=host)
        .exclude(image_digest="")
        .values_list("image_digest", flat=True)
        .distinct()
    )
