"""Start and stop."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.operations.context import Context, end_cancelled
from workspaces.operations.create import ensure_image, prepare, wait_for_guest
from workspaces.services import exits
from workspaces.services.activity import record
from workspaces.states import Status, TransitionLost, transition


def nothing(context: Context) -> None:
    """A later attempt of an operation whose first step finds out for itself what is left to do."""


def make_off(context: Context) -> None:
    """A later attempt begins with the machine off, whatever the attempt that died left."""
    context.driver.destroy(context.workspace.pk)


def find_image(context: Context) -> None:
    ensure_image(context)


def prepare_stopped(context: Context) -> None:
    """A machine that is off takes the row's current settings; one that holds memory goes on as it was."""
    if context.driver.state(context.workspace.pk) in (MachineState.OFF, MachineState.ABSENT):
        prepare(context)


def start_machine(context: Context) -> None:
    """A machine that runs already (a forced start) keeps its start time."""
    context.facts["ran"] = context.driver.state(context.workspace.pk) is MachineState.RUNNING
    context.driver.start(context.workspace.pk)


def complete_start(context: Context) -> None:
    started_at = context.workspace.started_at if context.facts["ran"] else timezone.now()
    with transaction.atomic():
        transition(
            context.workspace,
            Status.RUNNING,
            leaving=frozenset({Status.STARTING}),
            ready=True,
            started_at=started_at,
            user_requested_stop=False,
            error_code="",
            error_message="",
        )
        queue.finish(context.operation, OperationState.SUCCEEDED)
        record(context.workspace, "started", "The workspace was started.", actor=context.operation.actor)
    exits.settle_after_start(context.workspace, context.driver)


START_STEPS = (
    ("find_image", find_image),
    ("prepare_machine", prepare_stopped),
    ("start_machine", start_machine),
    ("wait_ready", wait_for_guest),
    ("complete", complete_start),
)


def start_failed(context: Context, code: str, sentence: str) -> None:
    """The machine is off and its disk as it was; the owner may start it again."""
    _destroy_quietly(context)
    with transaction.atomic():
        _stopped_with_error(context, code, sentence)
        queue.finish(context.operation, OperationState.FAILED, code=code, sentence=sentence)
        record(context.workspace, "start_failed", sentence)


def start_cancelled(context: Context) -> None:
    _destroy_quietly(context)
    end_cancelled(context)


def _stopped_with_error(context: Context, code: str, sentence: str) -> None:
    try:
        transition(context.workspace, Status.STOPPED, error_code=code, error_message=sentence, started_at=None)
    except TransitionLost:
        # A delete came meanwhile; it decides about the row.
        return


def _destroy_quietly(context: Context) -> None:
    try:
        context.driver.destroy(context.workspace.pk)
    except BackendError as exc:
        # The row says stopped or deleting: the reconcile loop ends the machine.
        record(context.workspace, "cleanup_postponed", exc.sentence)


def shut_down(context: Context) -> None:
    """The power button, the grace time, then hard."""
    grace = min(settings.ENV.stop_grace_seconds, context.remaining())
    context.facts["clean"] = context.driver.shutdown(context.workspace.pk, grace)


def complete_stop(context: Context) -> None:
    clean = context.facts["clean"]
    detail = "The workspace was stopped." if clean else "The workspace did not stop in time and was ended hard."
    with transaction.atomic():
        transition(
            context.workspace,
            Status.STOPPED,
            leaving=frozenset({Status.STOPPING}),
            user_requested_stop=True,
            started_at=None,
            error_code="",
            error_message="",
        )
        queue.finish(context.operation, OperationState.SUCCEEDED)
        record(context.workspace, "stopped", detail, actor=context.operation.actor)


STOP_STEPS = (("shut_down", shut_down), ("complete", complete_stop))


def stop_failed(context: Context, code: str, sentence: str) -> None:
    """The machine could not be ended: the workspace is what it was, and says why."""
    with transaction.atomic():
        transition(
            context.workspace,
            Status.RUNNING,
            leaving=frozenset({Status.STOPPING}),
            ready=True,
            error_code=code,
            error_message=sentence,
        )
        queue.finish(context.operation, OperationState.FAILED, code=code, sentence=sentence)
        record(context.workspace, "stop_failed", sentence)


def stop_cancelled(context: Context) -> None:
    """A delete comes next and ends the machine itself."""
    end_cancelled(context)
