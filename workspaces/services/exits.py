"""What happens to a workspace when its machine ends without anybody's operation."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import Driver, Event, EventKind, MachineState, StopReason
from workspaces.models import Workspace
from workspaces.operations import queue
from workspaces.services.activity import record
from workspaces.services.delete import workspace_delete
from workspaces.states import Status, TransitionLost, transition

SENTENCES = {
    StopReason.SHUTDOWN: "The workspace powered off.",
    StopReason.CRASHED: "The machine's process died.",
    StopReason.PANICKED: "The guest's kernel failed or it rebooted.",
    StopReason.DESTROYED: "The machine was ended on its host.",
    StopReason.SAVED: "The machine's memory was written to disk on its host.",
    StopReason.LOST: "The machine vanished from its host.",
}
ENDED = frozenset({Status.RUNNING, Status.PAUSED})


def machine_event(event: Event) -> None:
    """Take one event of the driver. Events of machines that are nobody's are ignored: reconcile removes those."""
    workspace = Workspace.objects.select_related("account", "host").filter(pk=event.machine_id).first()
    if workspace is None:
        return
    if event.kind is EventKind.MAIN_EXITED:
        Workspace.objects.filter(pk=workspace.pk).update(last_exit_code=event.exit_code)
    elif event.kind is EventKind.STOPPED and event.reason is not None:
        machine_ended(workspace, event.reason)


def settle_after_start(workspace: Workspace, driver: Driver) -> None:
    """A machine that ended between its readiness and the row's: its event came while the start was in flight."""
    if driver.state(workspace.pk) is MachineState.OFF:
        machine_ended(Workspace.objects.select_related("account", "host").get(pk=workspace.pk), StopReason.SHUTDOWN)


def machine_ended(workspace: Workspace, reason: StopReason) -> None:
    """The machine's process is gone and no operation did it; with one in flight, that operation settles it.

    Applies `remove_on_exit`; a machine that vanished is `lost`, any other `stopped` with the reason told.
    """
    with transaction.atomic():
        if queue.live(workspace) is not None:
            return
        to = Status.LOST if reason is StopReason.LOST else Status.STOPPED
        try:
            transition(
                workspace,
                to,
                leaving=ENDED,
                started_at=None,
                user_requested_stop=False,
                last_exit_reason=_reason(workspace, reason),
            )
        except TransitionLost:
            return
        record(workspace, _event(reason), _sentence(workspace, reason))
        if workspace.remove_on_exit and reason is not StopReason.LOST:
            workspace_delete(workspace=workspace, actor="remove_on_exit")


def _reason(workspace: Workspace, reason: StopReason) -> str:
    if reason is StopReason.SHUTDOWN and workspace.cmd:
        return "exited"
    return reason.value


def _event(reason: StopReason) -> str:
    return {StopReason.LOST: "lost", StopReason.SHUTDOWN: "exited"}.get(reason, reason.value)


def _sentence(workspace: Workspace, reason: StopReason) -> str:
    if reason is StopReason.SHUTDOWN and workspace.cmd and workspace.last_exit_code is not None:
        return f"The main process ended with exit code {workspace.last_exit_code}."
    return SENTENCES[reason]


def mark_unknown(workspace: Workspace, sentence: str) -> None:
    """The row of an operation that expired on a host that does not answer: stopped as far as anybody can tell."""
    transition(
        workspace,
        Status.STOPPED,
        error_code="deadline_exceeded",
        error_message=sentence,
        started_at=None,
        updated_at=timezone.now(),
    )
