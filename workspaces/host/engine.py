"""Claiming an operation and carrying it out; runs in vmhost only.

A kind is a list of named steps and three ends. Every step may be run again after a crash anywhere in it; an attempt
after the first begins by putting the machine into a known state. The end of an operation and the move of its
workspace are one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from vmbackend.errors import BackendError, BackendUnavailable, GuestUnreachable, MachineExited
from workspaces.host import faults, outcomes
from workspaces.host.context import Cancelled, Context
from workspaces.host.runtime import HostRuntime
from workspaces.host.steps import create, delete, destroy, power, reinstall, resize, sleep
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.operations import queue
from workspaces.transitions import TransitionLost

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
# What a second try may well cure: the process or the connection died under us.
WORTH_A_RETRY = (BackendUnavailable, GuestUnreachable, MachineExited)


@dataclass(frozen=True, slots=True)
class Kind:
    """`again` prepares a later attempt; `failed` and `cancelled` clean up and end the operation."""

    steps: tuple[tuple[str, Callable[[Context], None]], ...]
    again: Callable[[Context], None]
    failed: Callable[[Context, str, str], None]
    cancelled: Callable[[Context], None]


KINDS: dict[str, Kind] = {
    OperationKind.CREATE: Kind(create.STEPS, power.ensure_off, create.create_failed, create.create_cancelled),
    OperationKind.START: Kind(power.START_STEPS, power.ensure_off, power.start_failed, power.start_cancelled),
    OperationKind.STOP: Kind(power.STOP_STEPS, power.no_preparation, outcomes.fail_as_observed, power.power_cancelled),
    OperationKind.RESTART: Kind(power.RESTART_STEPS, power.no_preparation, power.restart_failed, power.power_cancelled),
    OperationKind.PAUSE: Kind(
        power.PAUSE_STEPS, power.no_preparation, outcomes.fail_as_observed, power.power_cancelled
    ),
    OperationKind.RESUME: Kind(
        power.RESUME_STEPS, power.no_preparation, outcomes.fail_as_observed, power.power_cancelled
    ),
    OperationKind.SLEEP: Kind(sleep.SLEEP_STEPS, power.no_preparation, sleep.sleep_failed, power.power_cancelled),
    OperationKind.WAKE: Kind(sleep.WAKE_STEPS, power.no_preparation, sleep.wake_failed, power.power_cancelled),
    OperationKind.RESIZE: Kind(resize.RESIZE_STEPS, power.no_preparation, resize.resize_failed, power.power_cancelled),
    OperationKind.REINSTALL: Kind(
        reinstall.REINSTALL_STEPS, power.no_preparation, reinstall.reinstall_failed, power.power_cancelled
    ),
    OperationKind.DESTROY: Kind(
        destroy.DESTROY_STEPS, power.no_preparation, destroy.destroy_failed, power.power_cancelled
    ),
    OperationKind.DELETE: Kind(delete.STEPS, power.no_preparation, delete.delete_failed, delete.delete_cancelled),
}


def run_operation(operation_id: str, side: HostRuntime) -> None:
    """Claim and carry out one operation; nothing happens where it is not to be had."""
    token = queue.new_claim()
    # Held before it is claimed: the reconcile loop must never see a claim of this process that nobody holds.
    with side.hold_claim(token):
        operation = queue.claim(operation_id, token)
        if operation is None:
            return
        try:
            _attempt(operation, side)
        except (queue.Preempted, TransitionLost) as exc:
            logger.warning("%s %s was taken away: %s", operation.kind, operation.pk, exc)


def _attempt(operation: Operation, side: HostRuntime) -> None:
    workspace = Workspace.objects.select_related("namespace", "host", "account").get(pk=operation.workspace_id)
    context = Context(operation, workspace, side.driver, side.images)
    kind = KINDS[operation.kind]
    try:
        _steps(context, kind)
    except Cancelled:
        kind.cancelled(context)
    except sleep.NotIdle:
        sleep.stay_awake(context)
    except WORTH_A_RETRY as exc:
        _again_or_fail(context, kind, exc)
    except BackendError as exc:
        fail_operation(context, kind, exc.code, exc.message)
    except queue.Preempted:
        raise
    except TransitionLost:
        # A delete moved the workspace after the last look: the same wish to end, seen a little later.
        if not queue.is_cancelled(operation):
            raise
        kind.cancelled(context)
    except Exception:
        logger.exception("%s %s failed on our side", operation.kind, operation.pk)
        fail_operation(context, kind, "internal_error", "Something went wrong on our side.")


def _steps(context: Context, kind: Kind) -> None:
    if context.operation.attempt > 1:
        kind.again(context)
    for name, step in kind.steps:
        context.check()
        queue.record_step(context.operation, name)
        faults.fault_point(context.operation.kind, name)
        step(context)


def _again_or_fail(context: Context, kind: Kind, exc: BackendError) -> None:
    operation = context.operation
    if operation.attempt >= MAX_ATTEMPTS or not operation.is_live:
        fail_operation(context, kind, exc.code, exc.message)
        return
    # What ends an attempt often lasts a moment: a hypervisor that reconnects, a process that is being reaped.
    after = settings.ENV.retry_seconds * 2 ** (operation.attempt - 1)
    with transaction.atomic():
        if not queue.requeue(operation, because=exc.message, after=after):
            raise queue.Preempted(operation.pk)


def fail_operation(context: Context, kind: Kind, code: str, sentence: str) -> None:
    """End an operation as failed; what its clean-up cannot remove now, the reconcile loop removes later.

    One that has ended already stays so: what went wrong after its last commit is for the reconcile loop to find.
    """
    if not context.operation.is_live:
        logger.warning("after the end of %s: %s", context.operation.pk, sentence)
        return
    # Raises Preempted: what somebody else ended may have a successor by now, whose machine a clean-up must not end.
    queue.is_cancelled(context.operation)
    try:
        kind.failed(context, code, sentence)
    except BackendError as exc:
        logger.warning("clean-up after %s: %s", context.operation.pk, exc)
        raise
