"""Workspaces of a namespace that is suspended or deleted: handlers of `namespaces.hooks`, and the sweep after them."""

from __future__ import annotations

import logging

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from common.errors import DomainError, InvalidState, VMUnavailable
from namespaces.models import Namespace
from namespaces.selectors import is_stopped, stopped_namespaces
from vmbackend.host_states import host_answers
from workspaces.audit import record_moves
from workspaces.crud.services import workspace_delete
from workspaces.errors import OperationInProgress
from workspaces.models import Workspace
from workspaces.power import workspace_stop
from workspaces.rows import update_all
from workspaces.snapshot_rows import snapshots_move
from workspaces.states import Status

logger = logging.getLogger(__name__)

# A paused machine holds memory, too. A planned restart is cancelled by a stop.
RUNS = Q(status__in=[Status.RUNNING, Status.PAUSED])
RESTARTS = Q(status__in=[Status.STOPPED, Status.LOST], restart_due_at__isnull=False)
BATCH = 200
SYSTEM = "namespace suspension"
SUSPENDED = "Its namespace is suspended."


def count_members(namespace: Namespace) -> int:
    """Return how many workspaces are in the namespace, including those that are being deleted."""
    return Workspace.objects.filter(namespace=namespace).count()


def stop_members(namespace: Namespace, actor: str, because: str) -> int:
    """Queue the stop of every running workspace. Return how many; a workspace that refuses (an operation is in flight)
    is left out.
    """
    rows = Workspace.objects.filter(RUNS | RESTARTS, namespace=namespace).select_related("account", "host")
    return sum(_stop(row, actor, because) for row in rows)


def _stop(row: Workspace, actor: str, because: str) -> bool:
    try:
        return workspace_stop(workspace=row, actor=actor, because=because) is not None
    except (OperationInProgress, InvalidState, VMUnavailable, Workspace.DoesNotExist) as exc:
        logger.info("%s is not stopped now: %s", row.pk, exc)
        return False


def stop_suspended_members() -> int:
    """Stop the workspaces that run in namespaces suspended by hand, or by a quota with that action. Return how many."""
    stopped = stopped_namespaces()
    if not stopped:
        return 0
    # A host that does not answer refuses each stop: its workspaces must not fill every batch.
    may_stop = RUNS & host_answers("host__") | RESTARTS
    rows = Workspace.objects.filter(may_stop, namespace__in=stopped).select_related("account", "host")
    # This is asked for each: while others are being stopped, the suspension may end and workspaces be started again.
    return sum(_stop(row, SYSTEM, SUSPENDED) for row in rows[:BATCH] if is_stopped(row.namespace_id))


@transaction.atomic
def move_members(source: Namespace, target: Namespace, actor: str) -> int:
    """Move all workspaces in one statement. Their usage belongs to the target from now on."""
    members = list(Workspace.objects.filter(namespace=source).values_list("pk", flat=True))
    record_moves(source.account_id, members, f"Moved from {source.slug} to {target.slug}.", actor=actor)
    return update_all(Q(namespace=source), namespace=target, updated_at=timezone.now())


def move_snapshots(source: Namespace, target: Namespace, actor: str) -> int:
    """Move the snapshots of a namespace that is deleted: those of its workspaces go with them."""
    return snapshots_move(source.pk, target.pk)


def delete_members(namespace: Namespace) -> int:
    """Queue the deletion of a batch of its workspaces. Return how many are still there.

    Workspaces whose deletion is queued are left out of the batch: it may wait long for its host.
    """
    members = Workspace.objects.filter(namespace=namespace)
    for row in members.exclude(status=Status.DELETING).select_related("host")[:BATCH]:
        _delete(row)
    return members.count()


def _delete(row: Workspace) -> None:
    try:
        workspace_delete(workspace=row, actor="namespace deletion")
    except (DomainError, Workspace.DoesNotExist) as exc:
        logger.info("%s is not deleted now: %s", row.pk, exc)
