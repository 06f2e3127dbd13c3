"""The restart policy: whether a machine that ended is started again, and when (specification, Lifecycle object)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from common.errors import DomainError
from common.times import iso
from vmbackend.driver import StopReason
from workspaces.audit import record_activity
from workspaces.errors import OperationInProgress
from workspaces.models import Operation, Workspace
from workspaces.models.workspace import RestartPolicy
from workspaces.power import workspace_start
from workspaces.rows import update_all, update_if, update_row
from workspaces.states import HOST_DOWN, Status

FIRST_DELAY, LONGEST_DELAY = 1, 300
# A machine that ran this long is not in a crash loop: the delay starts at its minimum again.
STABLE_SECONDS = 600
POSTPONE_SECONDS = 60
HISTORY = 20
START_FAILED = "start_failed"
ACTOR = "restart policy"


def is_failure(reason: str, exit_code: int | None) -> bool:
    """Return whether an end counts for `on-failure`: every end but a main process that exited with 0, a clean power-off
    and a host shutdown.
    """
    if reason in ("exited", StopReason.SHUTDOWN):
        return bool(exit_code)
    return reason != HOST_DOWN


def plan_restart(row: Workspace, reason: str, exit_code: int | None, now: datetime) -> dict[str, Any]:
    """Return the columns that plan a restart after an exit; empty if the policy does not demand one, or at the
    limit.
    """
    if not policy_wants_restart(row, reason, exit_code) or _is_at_its_limit(row, now):
        return {}
    count = _count(row, now)
    entry = {"at": iso(now), "exit_code": exit_code, "reason": reason}
    return {
        "restart_count": count + 1,
        "restart_due_at": now + timedelta(seconds=restart_delay(count)),
        "restart_history": [*row.restart_history, entry][-HISTORY:],
    }


def replan_restart(row: Workspace, operation: Operation) -> dict[str, Any]:
    """Plan another start after one of the restart policy failed; returns its columns and records it."""
    if not operation.params.get("by_policy"):
        return {}
    now = timezone.now()
    planned = plan_restart(row, START_FAILED, None, now)
    record_plan(row, START_FAILED, None, now, planned)
    return planned


def record_plan(row: Workspace, reason: str, exit_code: int | None, now: datetime, planned: dict[str, Any]) -> None:
    """Record in the audit log that a restart is planned, or that the limit is reached."""
    if planned:
        seconds = (planned["restart_due_at"] - now).total_seconds()
        record_activity(row, "restart_planned", f"It is started again in {seconds:g} seconds.", actor=ACTOR)
    elif policy_wants_restart(row, reason, exit_code) and _is_at_its_limit(row, now):
        message = f"It was restarted {row.restart_count} times; it is not started again."
        record_activity(row, "restart_given_up", message, actor=ACTOR)


def policy_wants_restart(row: Workspace, reason: str, exit_code: int | None) -> bool:
    """Return whether the policy demands a restart after this exit, apart from the limit."""
    if row.restart_policy == RestartPolicy.ON_FAILURE:
        return is_failure(reason, exit_code)
    return row.restart_policy in (RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED)


def _is_at_its_limit(row: Workspace, now: datetime) -> bool:
    return bool(row.max_restarts) and _count(row, now) >= row.max_restarts


def restart_delay(count: int) -> int:
    """Return the seconds before the next restart, after `count` of them in a row."""
    delay: int = FIRST_DELAY * 2 ** min(count, 10)
    return min(LONGEST_DELAY, delay)


def _count(row: Workspace, now: datetime) -> int:
    stable = row.started_at is not None and now - row.started_at > timedelta(seconds=STABLE_SECONDS)
    return 0 if stable and not row.max_restarts else row.restart_count


def start_due(row: Workspace) -> bool:
    """Start a workspace whose restart is due. Return False if the restart is obsolete or postponed."""
    if row.status not in (Status.STOPPED, Status.LOST) or row.restart_policy == RestartPolicy.NO:
        update_row(row, restart_due_at=None)
        return False
    try:
        workspace_start(workspace=row, actor=ACTOR, by_policy=True)
    except OperationInProgress:
        return False
    except DomainError as exc:
        _postpone(row, exc)
        return False
    update_row(row, last_restart_at=timezone.now())
    return True


def _postpone(row: Workspace, why: DomainError) -> None:
    later = timezone.now() + timedelta(seconds=POSTPONE_SECONDS)
    update_if(row, Q(restart_due_at__isnull=False), restart_due_at=later)
    if row.error_code != why.code:  # so that it is recorded once, not at every attempt
        record_activity(row, "restart_postponed", f"It is not restarted now: {why.message}", actor=ACTOR)
        update_row(row, error_code=why.code, error_message=why.message)


@transaction.atomic
def plan_after_host_start(host: str, *, rebooted: bool) -> int:
    """Plan the restart of workspaces that a host shutdown ended, as their policy says. Return how many.

    After a boot (`rebooted`), `always` also starts what its owner had stopped; `unless-stopped` does not.
    """
    ended_by_shutdown = Q(last_exit_reason=HOST_DOWN, user_requested_stop=False) & Q(
        restart_policy__in=[RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED]
    )
    wanted = ended_by_shutdown | Q(restart_policy=RestartPolicy.ALWAYS) if rebooted else ended_by_shutdown
    idle = Q(host_id=host, status=Status.STOPPED, restart_due_at__isnull=True)
    return update_all(wanted & idle, restart_due_at=timezone.now())
