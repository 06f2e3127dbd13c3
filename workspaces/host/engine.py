"""Claiming an operation and carrying it out; in vmhost only.

A kind is a list of named steps, with actions before a retry, on failure and on cancellation. A step may run again after
a crash anywhere in it; a retry begins by putting the machine into a known state. The outcome of an operation and the
transition of its workspace are one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from common.database_errors import is_database_unavailable
from common.log_context import operation_logged
from common.traces import set_outcome, span
from common.work.leases import ClaimLost, new_claim
from vmbackend.errors import BackendError, BackendUnavailable, CapacityExceeded, GuestUnreachable, MachineExited
from workspaces.host import faults, outcomes, stored_snapshots
from workspaces.host.context import Cancelled, Context
from workspaces.host.ownership import require_own_machine
from workspaces.host.released_calls import released_calls
from workspaces.host.runtime import HostRuntime
from workspaces.host.steps import create, delete, destroy, move, power, reinstall, resize, restore, sleep, snapshot
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.operations import queue
from workspaces.transitions import TransitionLost

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
# Errors that may be gone at the next attempt: a process or a connection died.
RETRYABLE = (BackendUnavailable, GuestUnreachable, MachineExited)


@dataclass(frozen=True, slots=True)
class Procedure:
    """Steps of a kind. `prepare_retry` runs before the steps of a later attempt; `failed` and `cancelled` clean up and
    end it.
    """

    steps: tuple[tuple[str, Callable[[Context], None]], ...]
    prepare_retry: Callable[[Context], None]
    failed: Callable[[Context, str, str], None]
    cancelled: Callable[[Context], None]


KINDS: dict[str, Procedure] = {
    OperationKind.CREATE: Procedure(create.STEPS, create.prepare_retry, create.create_failed, create.create_cancelled),
    OperationKind.START: Procedure(power.START_STEPS, power.ensure_off, power.start_failed, power.start_cancelled),
    OperationKind.STOP: Procedure(
        power.STOP_STEPS, power.no_preparation, outcomes.fail_as_observed, power.power_cancelled
    ),
    OperationKind.RESTART: Procedure(
        power.RESTART_STEPS, power.no_preparation, power.restart_failed, power.power_cancelled
    ),
    OperationKind.PAUSE: Procedure(
        power.PAUSE_STEPS, power.no_preparation, outcomes.fail_as_observed, power.power_cancelled
    ),
    OperationKind.RESUME: Procedure(
        power.RESUME_STEPS, power.no_preparation, outcomes.fail_as_observed, power.power_cancelled
    ),
    OperationKind.SLEEP: Procedure(sleep.SLEEP_STEPS, power.no_preparation, sleep.sleep_failed, power.power_cancelled),
    OperationKind.WAKE: Procedure(sleep.WAKE_STEPS, power.no_preparation, sleep.wake_failed, power.power_cancelled),
    OperationKind.RESIZE: Procedure(
        resize.RESIZE_STEPS, power.no_preparation, resize.resize_failed, power.power_cancelled
    ),
    OperationKind.REINSTALL: Procedure(
        reinstall.REINSTALL_STEPS, power.no_preparation, reinstall.reinstall_failed, power.power_cancelled
    ),
    OperationKind.SNAPSHOT: Procedure(
        snapshot.SNAPSHOT_STEPS, power.no_preparation, snapshot.snapshot_failed, snapshot.snapshot_cancelled
    ),
    OperationKind.FORK: Procedure(
        snapshot.FORK_STEPS, power.no_preparation, snapshot.snapshot_failed, snapshot.snapshot_cancelled
    ),
    OperationKind.RESTORE: Procedure(
        restore.RESTORE_STEPS, power.no_preparation, restore.restore_failed, power.power_cancelled
    ),
    OperationKind.MOVE: Procedure(move.MOVE_STEPS, power.no_preparation, move.move_failed, move.move_cancelled),
    OperationKind.DESTROY: Procedure(
        destroy.DESTROY_STEPS, power.no_preparation, destroy.destroy_failed, power.power_cancelled
    ),
    OperationKind.DELETE: Procedure(delete.STEPS, power.no_preparation, delete.delete_failed, delete.delete_cancelled),
}


def run_operation(operation_id: str, runtime: HostRuntime) -> None:
    """Claim and carry out one operation. Do nothing if it cannot be claimed.

    Beyond the account's share of the threads it stays queued, until one of the account's operations ends.
    """
    account_id = queue.account_of_queued(operation_id)
    if account_id is None or not runtime.shares.begin_operation(account_id, operation_id):
        return
    try:
        _claim_and_run(operation_id, runtime)
    finally:
        following = runtime.shares.end_operation(account_id)
        if following is not None:
            queue.notify_queue(runtime.queue_name, following)


def _claim_and_run(operation_id: str, runtime: HostRuntime) -> None:
    token = new_claim()
    # Owned before it is written: reconcile must never see a claim of this process that it does not own.
    with runtime.hold_claim(token):
        operation = queue.claim_operation(operation_id, token)
        if operation is None:
            return
        try:
            with operation_logged(operation.pk, operation.workspace_id), _operation_span(operation):
                _attempt(operation, runtime)
        except (ClaimLost, TransitionLost) as exc:
            logger.warning("lost the claim of %s %s: %s", operation.kind, operation.pk, exc)
        if key := operation.params.get("snapshot"):
            stored_snapshots.release_snapshot(runtime, key)


def _operation_span(operation: Operation) -> AbstractContextManager[object]:
    return span(
        f"operation {operation.kind}",
        operation_id=operation.pk,
        workspace_id=operation.workspace_id,
        attempt=operation.attempt,
    )


def _attempt(operation: Operation, runtime: HostRuntime) -> None:
    workspace = Workspace.objects.select_related("namespace", "host", "account").get(pk=operation.workspace_id)
    driver, images = released_calls(runtime.driver), released_calls(runtime.images)
    context = Context(operation, workspace, driver, images, runtime.pool.note_digest, runtime.transfers)
    kind = KINDS[operation.kind]
    try:
        runtime.flattening.give_up(workspace.pk)
        require_own_machine(context)
        _steps(context, kind)
    except Cancelled:
        kind.cancelled(context)
    except sleep.NotIdle:
        sleep.stay_awake(context)
    except RETRYABLE as exc:
        _retry_or_fail(context, kind, exc)
    except BackendError as exc:
        _fail(context, kind, exc)
    except ClaimLost:
        raise
    except TransitionLost:
        # A delete changed the status after the last check: the same cancellation, noticed a little later.
        if not queue.is_cancelled(operation):
            raise
        kind.cancelled(context)
    except Exception as exc:
        if is_database_unavailable(exc):
            # Its failure could not be stored either. Nothing owns the claim from here on: reconcile queues another
            # attempt, when the database takes it.
            logger.warning("%s %s is interrupted by the database: %s", operation.kind, operation.pk, exc)
            return
        logger.exception("%s %s failed unexpectedly", operation.kind, operation.pk)
        fail_operation(context, kind, "internal_error", "Something went wrong on our side.")


def _steps(context: Context, kind: Procedure) -> None:
    if context.operation.attempt > 1:
        kind.prepare_retry(context)
    for name, step in kind.steps:
        context.check_cancelled()
        queue.record_step(context.operation, name)
        with span(f"step {name}"):
            faults.fault_point(context.operation.kind, name)
            step(context)


def _retry_or_fail(context: Context, kind: Procedure, exc: BackendError) -> None:
    operation = context.operation
    if operation.attempt >= MAX_ATTEMPTS or not operation.is_live:
        fail_operation(context, kind, exc.code, exc.message)
        return
    # The cause often lasts a moment: a hypervisor that reconnects, a process that is being reaped.
    after = settings.ENV.retry_seconds * 2 ** (operation.attempt - 1)
    with transaction.atomic():
        if not queue.requeue_operation(operation, because=exc.message, after=after):
            raise ClaimLost(operation.pk)


def _fail(context: Context, kind: Procedure, exc: BackendError) -> None:
    if isinstance(exc, CapacityExceeded):  # the answer names it
        queue.record_facts(context.operation, lacks=exc.resource)
    fail_operation(context, kind, exc.code, exc.message)


def fail_operation(context: Context, kind: Procedure, code: str, message: str) -> None:
    """End an operation as failed. Reconcile later removes whatever the clean-up cannot remove now.

    An operation that has ended stays as it is: reconcile finds whatever went wrong after its last commit.
    """
    if not context.operation.is_live:
        logger.warning("error after the end of %s: %s", context.operation.pk, message)
        return
    set_outcome(error_type=code)
    # Raises ClaimLost: an operation that was ended elsewhere may have a successor, whose machine must not be ended.
    queue.is_cancelled(context.operation)
    try:
        kind.failed(context, code, message)
    except BackendError as exc:
        logger.warning("the clean-up after %s failed: %s", context.operation.pk, exc)
        raise
