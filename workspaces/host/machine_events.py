"""Events of machines: a machine that ended without an operation, the exit of a main process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import Driver, Event, EventKind, MachineEnd, MachineState, StopReason
from vmbackend.errors import BackendError
from workspaces.audit import record_activity
from workspaces.crud.services import workspace_delete
from workspaces.host import restarts
from workspaces.host.ownership import is_foreign
from workspaces.models import Operation, Workspace
from workspaces.operations import queue
from workspaces.rows import lock_row
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

END_MESSAGES = {
    StopReason.SHUTDOWN: "The workspace powered off.",
    StopReason.CRASHED: "The machine's process died.",
    StopReason.PANICKED: "The guest's kernel failed or it rebooted.",
    StopReason.DESTROYED: "The machine was ended on its host.",
    StopReason.SAVED: "The machine's memory was written to disk on its host.",
    StopReason.LOST: "The machine vanished from its host.",
}
UP = (MachineState.RUNNING, MachineState.PAUSED)
GONE = (MachineState.OFF, MachineState.ABSENT)
ENDED = frozenset({Status.RUNNING, Status.PAUSED})
_REASON_OF_STATE = {MachineState.ABSENT: StopReason.LOST, MachineState.ASLEEP: StopReason.SAVED}


def handle_machine_event(event: Event, driver: Driver, host_id: str) -> None:
    """Handle one event of this host's driver. Only the end of a machine matters.

    The event may come late, when a later process of the machine has ended: so the driver is asked for the reason.
    Events of orphans and of former copies are ignored: reconcile removes those machines, or sets them aside.
    """
    if event.kind is not EventKind.STOPPED or event.reason is None:
        return
    rows = Workspace.objects.select_related("account", "host").filter(pk=event.machine_id, host_id=host_id)
    workspace = rows.first()
    if workspace is not None and not is_foreign(driver.epoch_of(workspace.pk), workspace):
        handle_machine_end(workspace, driver)


def settle_machine_end(operation: Operation, driver: Driver) -> None:
    """Settle an end of the machine after an operation: its event may have come while the operation was in flight.

    If the reason of the end is not known yet, its event settles it.
    """
    row = Workspace.objects.select_related("account", "host").filter(pk=operation.workspace_id).first()
    if row is None or row.status not in ENDED:
        return
    try:
        if driver.state(row.pk) in GONE:
            handle_machine_end(row, driver)
    except BackendError as exc:
        logger.warning("%s may have ended: %s", row.pk, exc.message)  # reconcile settles it


def final_reason(end: MachineEnd) -> StopReason | None:
    """Return why a process ended, or None while the event that says so is still to come."""
    return end.reason if end.is_final else None


def handle_machine_end(
    workspace: Workspace, driver: Driver, reason_of: Callable[[MachineEnd], StopReason | None] = final_reason
) -> None:
    """Settle a machine whose process ended without an operation; an operation in flight settles it at its own end.

    Reason and exit code are those of the last process, as the driver knows them now. If `reason_of` has no reason,
    nothing is done. Applies `remove_on_exit` and the restart policy. A machine that disappeared is `lost`, one whose
    memory was saved `sleeping`, any other `stopped` with the reason.
    """
    with transaction.atomic():
        # Checked under the row's lock: the event may arrive after the next start, even while that completes.
        lock_row(workspace)
        if queue.live_operation(workspace) is not None:
            return
        state = driver.state(workspace.pk)
        if state in UP:
            return
        end = driver.last_end(workspace.pk)
        code = end.exit_code if workspace.cmd else None
        # With an exit code the end is a power-off, whatever ended the process meanwhile.
        reason = _REASON_OF_STATE.get(state) or (reason_of(end) if code is None else StopReason.SHUTDOWN)
        if reason is None:
            return
        try:
            if reason is StopReason.SAVED:
                expires = memory_expiry(workspace)
                transition(workspace, Status.SLEEPING, leaving=ENDED, idle_due_at=None, memory_expires_at=expires)
            else:
                _ended(workspace, reason, code)
        except TransitionLost:
            return
        record_activity(workspace, _event(reason), _message(workspace, reason))
        if workspace.remove_on_exit and reason not in (StopReason.LOST, StopReason.SAVED):
            workspace_delete(workspace=workspace, actor="remove_on_exit")


def memory_expiry(row: Workspace) -> datetime | None:
    """Return when the memory of a workspace that falls asleep now is dropped, or None for never."""
    return timezone.now() + timedelta(seconds=row.stop_after) if row.stop_after else None


def _ended(workspace: Workspace, reason: StopReason, code: int | None) -> None:
    """Make the transition of a row whose machine ended, with the restart that its policy plans. Raise
    TransitionLost.
    """
    now, exit_reason = timezone.now(), _exit_reason(workspace, reason)
    code = code if exit_reason == "exited" else None
    planned = {} if workspace.remove_on_exit else restarts.plan_restart(workspace, exit_reason, code, now)
    transition(
        workspace,
        Status.LOST if reason is StopReason.LOST else Status.STOPPED,
        leaving=ENDED,
        started_at=None,
        user_requested_stop=False,
        last_exit_reason=exit_reason,
        last_exit_code=code,
        idle_due_at=None,
        **planned,
    )
    restarts.record_plan(workspace, exit_reason, code, now, planned)


def _exit_reason(workspace: Workspace, reason: StopReason) -> str:
    if reason is StopReason.SHUTDOWN and workspace.cmd:
        return "exited"
    return reason.value


def _event(reason: StopReason) -> str:
    return {StopReason.LOST: "lost", StopReason.SHUTDOWN: "exited", StopReason.SAVED: "slept"}.get(reason, reason.value)


def _message(workspace: Workspace, reason: StopReason) -> str:
    if reason is StopReason.SHUTDOWN and workspace.cmd and workspace.last_exit_code is not None:
        return f"The main process ended with exit code {workspace.last_exit_code}."
    return END_MESSAGES[reason]
