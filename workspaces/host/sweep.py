"""The sweep: TTL, idle sleep, restarts, and expiry of saved memory, snapshots and links. One indexed query finds all
workspaces that are due.

Each due row is handled by a service; one that cannot be handled (an operation is in flight, its host does not answer)
stays due. After a downtime of the control plane the first sweep finds everything that became due in between.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import redis
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from common.errors import DomainError
from vmbackend.host_states import host_answers
from vmbackend.models import Host
from workspaces import last_used
from workspaces.audit import record_activity
from workspaces.crud.services import workspace_delete
from workspaces.errors import OperationInProgress
from workspaces.host import restarts
from workspaces.host.outcomes import TTL_ACTOR
from workspaces.models import Workspace
from workspaces.models.workspace import DUE_COLUMNS, TtlAction
from workspaces.network.links import links_expire
from workspaces.power import STOPPABLE, workspace_pause, workspace_sleep, workspace_stop
from workspaces.rows import update_row, update_unless_changed
from workspaces.snapshot_rows import expire_snapshots
from workspaces.states import TRANSITIONAL, Status

logger = logging.getLogger(__name__)

BATCH = 200
IDLE_ACTOR = "idle policy"
# How long a row that could not be handled is postponed, so that such rows never fill every batch.
RETRY_AFTER = timedelta(seconds=5)
EXPIRED = "The time to live is over."


def due_workspaces(now: datetime) -> QuerySet[Workspace]:
    """Return the rows that are due, without those that have an operation in flight or whose host does not answer."""
    wanted = Q()
    for column in DUE_COLUMNS:
        wanted |= Q(**{f"{column}__lte": now})
    silent = Host.objects.exclude(host_answers())
    return Workspace.objects.filter(wanted).exclude(status__in=TRANSITIONAL).exclude(host__in=silent).order_by()


def sweep_due() -> int:
    """Handle the rows that are due, and snapshots and links whose time is over. Return how many were changed."""
    now = timezone.now()
    # Prefetched, not joined: without due rows nothing is read, and the planner cannot begin with the joined tables.
    rows = due_workspaces(now).prefetch_related("account__plan", "namespace", "host").defer("env", "workloads")
    return sum(_handle(row, now) for row in rows[:BATCH]) + expire_snapshots(now) + links_expire()


def _handle(row: Workspace, now: datetime) -> bool:
    try:
        return _handle_due(row, now)
    except OperationInProgress:
        return False
    except DomainError as exc:
        logger.warning("sweep: %s could not be handled: %s", row.pk, exc.message)
        _postpone(row, now)
        return False
    except Exception:
        logger.exception("sweep: %s could not be handled", row.pk)
        _postpone(row, now)
        return False


def _handle_due(row: Workspace, now: datetime) -> bool:
    """Carry out at most one action for a row in one sweep, as each action changes its status."""
    if row.ttl_expires_at and row.ttl_expires_at <= now:
        return expire_ttl(row)
    if row.memory_expires_at and row.memory_expires_at <= now:
        return expire_memory(row)
    if row.restart_due_at and row.restart_due_at <= now:
        return restarts.start_due(row)
    return suspend_idle(row, now)


def _postpone(row: Workspace, now: datetime) -> None:
    late = {column: now + RETRY_AFTER for column in DUE_COLUMNS if (getattr(row, column) or now + RETRY_AFTER) <= now}
    for column, at in late.items():
        update_unless_changed(row, (column,), **{column: at})


@transaction.atomic
def expire_ttl(row: Workspace) -> bool:
    """Carry out `ttl_action`. On a workspace that does not run only `remove` has an effect.

    The TTL stays expired until the operation has succeeded, so one that fails is retried.
    """
    if not update_unless_changed(row, ("ttl_expires_at",), updated_at=timezone.now()):
        return False  # renewed since the query
    row.refresh_from_db(fields=["status", "ttl_action"])  # locked by the update; the owner may have changed them
    if row.status in TRANSITIONAL:
        raise OperationInProgress
    if row.ttl_action == TtlAction.REMOVE:
        record_activity(row, "ttl_expired", f"{EXPIRED} The workspace is removed.", actor=TTL_ACTOR)
        workspace_delete(workspace=row, actor=TTL_ACTOR)
    elif row.ttl_action == TtlAction.PAUSE and row.status == Status.RUNNING:
        because = f"{EXPIRED} The workspace was paused."
        workspace_pause(workspace=row, actor=TTL_ACTOR, because=because, by_ttl=True)
    elif row.ttl_action == TtlAction.STOP and row.status in STOPPABLE:
        because = f"{EXPIRED} The workspace was stopped."
        workspace_stop(workspace=row, actor=TTL_ACTOR, by_user=False, because=because)
    else:
        update_unless_changed(row, ("ttl_expires_at",), ttl_expires_at=None)
    return True


@transaction.atomic
def expire_memory(row: Workspace) -> bool:
    """Stop a sleeping workspace whose saved memory has expired."""
    if row.status != Status.SLEEPING:
        update_unless_changed(row, ("memory_expires_at",), memory_expires_at=None)
        return False
    if not update_unless_changed(row, ("memory_expires_at",), updated_at=timezone.now()):
        return False  # extended since the query
    because = "It slept longer than its memory is kept; it was stopped."
    workspace_stop(workspace=row, actor=IDLE_ACTOR, by_user=False, because=because)
    return True


def suspend_idle(row: Workspace, now: datetime) -> bool:
    """Put an unused workspace to sleep; one that was used becomes due again after its idle time."""
    if row.status != Status.RUNNING or not row.suspend_after:
        update_row(row, idle_due_at=None)
        return False
    again = _idle_from(row, now)
    if again > now:
        update_row(row, idle_due_at=again)
        return False
    workspace_sleep(workspace=row, actor=IDLE_ACTOR, idle=True)
    return True


def _idle_from(row: Workspace, now: datetime) -> datetime:
    """Return when the idle time ends; shortly after `now` if Redis does not answer."""
    try:
        used = last_used.last_used(row.pk)
    except redis.RedisError as exc:
        logger.warning("the last use of %s cannot be read: %s", row.pk, exc)
        return now + RETRY_AFTER
    if not used:
        return now
    return datetime.fromtimestamp(used, tz=now.tzinfo) + timedelta(seconds=row.suspend_after)
