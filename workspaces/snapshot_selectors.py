"""Reading snapshots within the scope of an actor. A snapshot outside of it does not exist for the actor (404)."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from accounts.actors import Actor
from accounts.permissions import require_named_namespace
from accounts.scopes import Scope
from common.errors import NotFound
from namespaces.models import Namespace
from workspaces.models import Snapshot, Workspace
from workspaces.models.snapshot import SHOWN, SnapshotStatus

NOT_FOUND_MESSAGE = "There is no such snapshot."
# Columns that a snapshot object does not contain; the encrypted ones above all.
_HIDDEN = ("env", "workloads", "cmd", "catalog_snapshot", "network")


def visible_snapshots(actor: Actor) -> QuerySet[Snapshot]:
    """Return the kept snapshots that the actor may see, with what a snapshot object contains."""
    found = Snapshot.objects.filter(SHOWN, account=actor.account).defer(*_HIDDEN)
    found = found.annotate(joined_namespace=_namespace_slug(), dependants=_dependants())
    if actor.scope is Scope.NAMESPACE:
        return found.filter(namespace_id=actor.namespace_id)
    if actor.scope is Scope.WORKSPACE:
        return found.filter(workspace_id=actor.workspace_id)
    return found


def _namespace_slug() -> Subquery:
    """Return the slug of a snapshot's namespace. A join would be part of each count of a list, too."""
    return Subquery(Namespace.objects.filter(pk=OuterRef("namespace_id")).values("slug"))


def _dependants() -> Coalesce:
    """Return the number of workspaces that were made from a snapshot."""
    made = Workspace.objects.filter(source_snapshot_id=OuterRef("pk")).order_by()
    count = made.values("source_snapshot_id").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(count, output_field=IntegerField()), 0)


def get_snapshot(actor: Actor, snapshot_id: str) -> Snapshot:
    """Return a snapshot by id. Raise NotFound, also if the actor may not see it."""
    found = visible_snapshots(actor).filter(pk=snapshot_id).first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    return found


def find_snapshot(actor: Actor, identifier: str) -> Snapshot:
    """Return a snapshot by id or name, with every column. Raise NotFound.

    An id comes first, then the one that holds the name, then the newest of those that failed under it.
    """
    named = visible_snapshots(actor).filter(Q(pk=identifier) | Q(name=identifier)).defer(None)
    newest = named.select_related("host", "namespace").order_by("-created_at", "-pk")
    found = sorted(newest, key=lambda each: (each.pk != identifier, each.status == SnapshotStatus.FAILED))
    if not found:
        raise NotFound(NOT_FOUND_MESSAGE)
    return found[0]


def newest_ready(workspace: Workspace) -> Snapshot:
    """Return the newest complete snapshot of a workspace. Raise NotFound."""
    rows = Snapshot.objects.filter(SHOWN, workspace=workspace, status=SnapshotStatus.READY)
    found = rows.select_related("host", "namespace").order_by("-created_at", "-pk").first()
    if found is None:
        raise NotFound("This workspace has no snapshot that is complete.")
    return found


def listed_snapshots(
    actor: Actor, *, namespace: str = "", workspace_id: str = "", status: str = "", search: str = ""
) -> QuerySet[Snapshot]:
    """Return the list's rows, newest first. Raise Forbidden (bound to another namespace)."""
    found = visible_snapshots(actor)
    if namespace:
        require_named_namespace(actor, namespace)
        found = found.filter(namespace__slug=namespace)
    exact: dict[str, Any] = {"workspace_id": workspace_id, "status": status}
    found = found.filter(**{name: value for name, value in exact.items() if value})
    if search:
        found = found.filter(Q(name__icontains=search) | Q(pk=search))
    return found.select_related("host").order_by("-created_at", "-id")
