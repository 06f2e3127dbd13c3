"""Workspaces as targets of custom domains: handlers of `domains.hooks`."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Exists, OuterRef

from domains.hooks import DomainEvent
from domains.models import CustomDomain, TargetKind
from domains.services import target_removed
from workspaces.audit import record_activity_of
from workspaces.models import Workspace
from workspaces.rows import find_and_lock
from workspaces.states import Status


def served_workspaces(kind: TargetKind, ids: Collection[str]) -> set[str]:
    """Return the workspaces that exist: whether a port is open is asked with each request."""
    if kind != TargetKind.WORKSPACE:
        return set()
    return set(Workspace.objects.filter(pk__in=ids).values_list("pk", flat=True))


def workspace_lock(kind: TargetKind, workspace_id: str) -> bool:
    if kind != TargetKind.WORKSPACE:
        return False
    found = find_and_lock(workspace_id)
    return found is not None and found.status != Status.DELETING


def disconnect_gone_workspaces() -> int:
    """Disconnect the domains of workspaces that are gone: a host with credentials of its own removes the workspace's
    row alone. Return how many.
    """
    exists = Workspace.objects.filter(pk=OuterRef("target_id"))
    gone = CustomDomain.objects.filter(~Exists(exists), target_kind=TargetKind.WORKSPACE)
    found = list(gone.values_list("target_id", flat=True))
    for workspace_id in found:
        target_removed(TargetKind.WORKSPACE, workspace_id)
    return len(found)


def domain_event(event: DomainEvent) -> None:
    if event.kind == TargetKind.WORKSPACE:
        record_activity_of(event.account_id, event.target_id, event.action, event.detail, actor=event.actor)
