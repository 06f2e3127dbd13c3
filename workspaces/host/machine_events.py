"""What happens to a workspace when its machine ends without anybody's operation."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import Driver, Event, EventKind, MachineState, StopReason
from vmbackend.errors import BackendError
from workspaces.audit import record
from workspaces.crud.services import workspace_delete
from workspaces.host import restarts
from workspaces.models import Operation, Workspace
from workspaces.operations import queue
from workspaces.rows import lock_row, update_row
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

SENTENCES = {
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
NOTED = "ended"  # in an operation's params: why the machine ended while it was in flight


def handle_machine_event(event: Event, driver: Driver) -> None:
    """Take one event of the driver. Events of machines that are nobody's are ignored: reconcile removes those."""
    workspace = Workspace.objects.select_related("account", "host").filter(pk=event.machine_id).first()
    if workspace is None:
        return
    if event.kind is EventKind.MAIN_EXITED:
        update_row(workspace, main_exit_code=event.exit_code)
    elif event.kind is EventKind.STOPPED and event.reason is not None:
        handle_machine_end(workspace, event.reason, driver)


def settle_machine_end(operation: Operation, driver: Driver, *, unseen: StopReason | None = None) -> None:
    """After an operation: a machine that ended meanwhile, whose event was put off because the operation was in flight.

    `unseen` is the reason where no event came (yet); without it such an end is left to its event.
    """
    row = Workspace.objects.select_related("account", "host").filter(pk=operation.workspace_id).first()
    if row is None or row.status not in ENDED:
        return
    try:
        state = driver.state(row.pk)
        if state in GONE and (reason := _reason_noted(operation, row, state) or unseen):
            handle_machine_end(row, reason, driver)
    except BackendError as exc:
        logger.warning("%s may have ended: %s", row.pk, exc.message)  # reconcile finds it


def _reason_noted(operation: Operation, row: Workspace, state: MachineState) -> StopReason | None:
    noted = Operation.objects.filter(pk=operation.pk).values_list("params", flat=True).first() or {}
    if state is MachineState.ABSENT:
        return StopReason.LOST
    if NOTED in noted:
        return StopReason(noted[NOTED])
    # The guest said its exit code; nothing but a power-off follows that.
    return StopReason.SHUTDOWN if row.main_exit_code is not None else None


def handle_machine_end(workspace: Workspace, reason: StopReason, driver: Driver) -> None:
    """The machine's process is gone and no operation did it; with one in flight, that operation settles it.

    Applies `remove_on_exit` and the restart policy; a machine that vanished is `lost`, one whose memory was saved
    `sleeping`, any other `stopped` with the reason told.
    """
    with transaction.atomic():
        # Under the row's lock, and only then: an end may be told after the next start, even while that completes.
        lock_row(workspace)
        pending = queue.live_operation(workspace)
        if pending is not None:
            queue.record_facts(pending, **{NOTED: reason.value})
        if pending is not None or driver.state(workspace.pk) in UP:
            return
        try:
            if reason is StopReason.SAVED:
                kept = memory_kept_until(workspace)
                transition(workspace, Status.SLEEPING, leaving=ENDED, idle_due_at=None, memory_expires_at=kept)
            else:
                _ended(workspace, reason)
        except TransitionLost:
            return
        record(workspace, _event(reason), _sentence(workspace, reason))
        if workspace.remove_on_exit and reason not in (StopReason.LOST, StopReason.SAVED):
            workspace_delete(workspace=workspace, actor="remove_on_exit")


def memory_kept_until(row: Workspace) -> datetime | None:
    """When the memory of a workspace that falls asleep now is given up; None: never."""
    return timezone.now() + timedelta(seconds=row.stop_after) if row.stop_after else None


def _ended(workspace: Workspace, reason: StopReason) -> None:
    """The move of a row whose machine is gone, with the restart that its policy plans. Raises TransitionLost."""
    now, told = timezone.now(), _reason(workspace, reason)
    code = workspace.main_exit_code if told == "exited" else None
    planned = {} if workspace.remove_on_exit else restarts.plan_restart(workspace, told, code, now)
    transition(
        workspace,
        Status.LOST if reason is StopReason.LOST else Status.STOPPED,
        leaving=ENDED,
        started_at=None,
        user_requested_stop=False,
        last_exit_reason=told,
        last_exit_code=code,
        idle_due_at=None,
        **planned,
    )
    restarts.record_plan(workspace, told, code, now, planned)


def _reason(workspace: Workspace, reason: StopReason) -> str:
    if reason is StopReason.SHUTDOWN and workspace.cmd:
        return "exited"
    return reason.value


def _event(reason: StopReason) -> str:
    return {StopReason.LOST: "lost", StopReason.SHUTDOWN: "exited", StopReason.SAVED: "slept"}.get(reason, reason.value)


def _sentence(workspace: Workspace, reason: StopReason) -> str:
    if reason is StopReason.SHUTDOWN and workspace.cmd and workspace.main_exit_code is not None:
        return f"The main process ended with exit code {workspace.main_exit_code}."
    return SENTENCES[reason]
