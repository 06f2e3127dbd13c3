"""Start, stop, restart, pause and resume."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError
from vmbackend.power import GUEST_END_SECONDS
from workspaces.audit import record_activity
from workspaces.host import machine_events, restarts
from workspaces.host.context import Context, finish_cancelled
from workspaces.host.guest_renewals import renew_guest
from workspaces.host.outcomes import (
    destroy_machine,
    fail_as_observed,
    fail_stopped,
    fail_with_status,
    is_ttl_over,
    lock_for_outcome,
    restore_sizes,
    succeed_running,
    succeed_with_status,
)
from workspaces.host.steps.create import define_machine, ensure_image, launch_machine, wait_for_guest
from workspaces.host.steps.room import check_capacity
from workspaces.models import Workspace
from workspaces.models.workspace import TtlAction
from workspaces.rows import update_unless_changed
from workspaces.states import HOST_DOWN, Status


def no_preparation(context: Context) -> None:
    """Do nothing, for operations whose steps determine themselves what is left to do at a retry."""


def ensure_off(context: Context) -> None:
    """End the machine before a retry, in whatever state the last attempt left it.

    A machine that ran before the operation (a forced start) is left running.
    """
    if context.operation.params.get("from") != Status.RUNNING:
        context.driver.destroy(context.workspace.pk)


def power_cancelled(context: Context) -> None:
    """End the operation in favour of a delete, which ends the machine."""
    finish_cancelled(context)


# Start


def find_image(context: Context) -> None:
    ensure_image(context)


def prepare_stopped(context: Context) -> None:
    """Define a machine that is off as its row describes it; one that has memory keeps its definition."""
    if context.driver.state(context.workspace.pk) in (MachineState.OFF, MachineState.ABSENT):
        define_machine(context)


def start_machine(context: Context) -> None:
    """Start the machine. One that runs already (a forced start) keeps its start time."""
    context.facts["ran"] = context.driver.state(context.workspace.pk) is MachineState.RUNNING
    launch_machine(context)


def complete_start(context: Context) -> None:
    started_at = context.workspace.started_at if context.facts["ran"] else None
    succeed_running(context, "started", "The workspace was started.", started_at=started_at or timezone.now())


START_STEPS = (
    ("find_image", find_image),
    ("prepare_machine", prepare_stopped),
    ("start_machine", start_machine),
    ("wait_ready", wait_for_guest),
    ("complete", complete_start),
)


def start_failed(context: Context, code: str, message: str) -> None:
    """End the machine, with its disk unchanged; one that ran before the operation continues to run.

    A start of the restart policy is planned again.
    """
    if context.facts.get("ran"):
        fail_as_observed(context, code, message)
        return
    destroy_machine(context)
    again = restarts.replan_restart(context.workspace, context.operation)
    fail_with_status(context, Status.STOPPED, code, message, **again)


def start_cancelled(context: Context) -> None:
    destroy_machine(context)
    finish_cancelled(context)


# Stop


def shut_down(context: Context) -> None:
    """Shut down, and end the machine after the grace time of its programs and of the guest."""
    grace = min(settings.ENV.stop_grace_seconds + GUEST_END_SECONDS, context.remaining())
    context.facts["clean"] = context.driver.shutdown(context.workspace.pk, grace)
    record_start(context.workspace, None)


def record_start(row: Workspace, at: datetime | None) -> None:
    """Write since when the process exists, None for no process; only while the status is the same."""
    update_unless_changed(row, ("status",), started_at=at)
    row.started_at = at


def complete_stop(context: Context) -> None:
    by_user = bool(context.operation.params.get("by_user", True))
    row = context.workspace
    with transaction.atomic():
        lock_for_outcome(row)
        fields = stopped_fields(row, by_user=by_user)
        succeed_with_status(context, Status.STOPPED, "stopped", _stop_message(context), **fields)


def stopped_fields(row: Workspace, *, by_user: bool) -> dict[str, Any]:
    """Return the columns of a workspace that was stopped on request."""
    return {
        "user_requested_stop": by_user,
        "started_at": None,
        "restart_due_at": None,
        "memory_expires_at": None,
        "idle_due_at": None,
        # On a stopped workspace only a removal can be due.
        **({} if row.ttl_action == TtlAction.REMOVE else {"ttl_expires_at": None}),
        # After a stop, a former shutdown of the host no longer causes a restart.
        **({"last_exit_reason": ""} if row.last_exit_reason == HOST_DOWN else {}),
    }


def _stop_message(context: Context) -> str:
    because = context.operation.params.get("because")
    if because:
        return str(because)
    if context.facts["clean"]:
        return "The workspace was stopped."
    return "The workspace did not stop in time and was ended hard."


STOP_STEPS = (("shut_down", shut_down), ("complete", complete_stop))


# Restart


def begin_relaunch(context: Context) -> None:
    """Note that a failure from here on ends the machine, even if it was started."""
    context.facts["down"] = True
    context.record_fact("resized")  # from the next step on the machine may have the new sizes
    ensure_image(context)


def complete_restart(context: Context) -> None:
    succeed_running(context, "restarted", "The workspace was restarted.", started_at=timezone.now())


RESTART_STEPS = (
    ("check_capacity", check_capacity),
    ("shut_down", shut_down),
    ("find_image", begin_relaunch),
    ("prepare_machine", prepare_stopped),
    ("start_machine", start_machine),
    ("wait_ready", wait_for_guest),
    ("complete", complete_restart),
)


def restart_failed(context: Context, code: str, message: str) -> None:
    """Write the failure: still running if the machine could not be stopped, stopped if it could not be started."""
    if context.facts.get("down"):
        fail_stopped(context, code, message)
    else:
        if not context.facts.get("resized"):
            restore_sizes(context.workspace, context.operation.params)
        fail_as_observed(context, code, message)


# Pause and resume


def pause_machine(context: Context) -> None:
    context.driver.pause(context.workspace.pk)


def complete_pause(context: Context) -> None:
    message = str(context.operation.params.get("because") or "The workspace was paused.")
    with transaction.atomic():
        lock_for_outcome(context.workspace)
        by_ttl = context.operation.params.get("by_ttl") and is_ttl_over(context.workspace)
        done = {"ttl_expires_at": None} if by_ttl else {}
        succeed_with_status(context, Status.PAUSED, "paused", message, idle_due_at=None, **done)
    machine_events.settle_machine_end(context.operation, context.driver)


PAUSE_STEPS = (("pause_machine", pause_machine), ("complete", complete_pause))


def resume_machine(context: Context) -> None:
    context.driver.resume(context.workspace.pk)


def resync_guest(context: Context) -> None:
    """Renew clock and random pool before requests are let in; a guest that does not answer is recorded."""
    try:
        context.driver.resync_guest(context.workspace.pk)
    except BackendError as exc:
        record_activity(context.workspace, "clock_not_set", f"The guest's clock could not be set: {exc.message}")
    renew_guest(context.workspace)


def complete_resume(context: Context) -> None:
    succeed_running(context, "resumed", "The workspace was resumed.")


RESUME_STEPS = (("resume_machine", resume_machine), ("resync_guest", resync_guest), ("complete", complete_resume))
