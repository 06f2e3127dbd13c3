"""Creation: pull the image, prepare the machine, start it, wait for its guest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from common.connections import connection_released_after
from vmbackend.driver import MachineSpec
from vmbackend.errors import BackendError, CapacityExceeded, GuestUnreachable, MachineExited
from vmbackend.images.types import Image, ImageCancelled
from vmbackend.power import StartedFrom
from workspaces.audit import record_activity
from workspaces.host import network_policy as network
from workspaces.host.context import MAX_MESSAGE, Cancelled, Context, finish_cancelled
from workspaces.host.machine_spec import image_reference, machine_spec
from workspaces.host.outcomes import after_start, lock_for_outcome, running_fields
from workspaces.host.pool.removal import give_back_memory
from workspaces.host.snapshot_memory import require_memory_fits
from workspaces.models import Workspace
from workspaces.models.operation import OperationKind, OperationState
from workspaces.models.workspace import TtlAction
from workspaces.operations import queue
from workspaces.rows import update_row
from workspaces.ssh import mark_access_applied
from workspaces.states import CREATING, Provisioning, ProvisioningPhase, Status
from workspaces.transitions import TransitionLost, transition
from workspaces.warm_machines import retire_alike, shape_of
from workspaces.workload_changes.services import mark_workloads_applied

logger = logging.getLogger(__name__)

ASSIGNED = "assigned"  # a fact of the attempt: the machine is a warm one and runs
# The progress, 0 to 100, at which each phase begins.
PULL_FROM, PULL_TO, PREPARE_AT, START_AT, INIT_AT = 5, 70, 75, 85, 90
PROGRESS_EVERY = 0.5


def begin_create(context: Context) -> None:
    require_memory_fits(context)
    transition(
        context.workspace,
        Status.CREATING,
        leaving=CREATING,
        provisioning_state=Provisioning.RUNNING,
        provisioning_phase=ProvisioningPhase.PULLING_IMAGE,
        provisioning_progress=PULL_FROM,
        provisioning_message="Getting the image.",
        provisioning_attempts=context.workspace.provisioning_attempts + 1,
        provisioning_updated_at=timezone.now(),
    )


def pull_image(context: Context) -> None:
    """Make the image ready on this host and pin its digest on the row."""
    ensure_image(context, progress=_PullProgress(context))


def ensure_image(context: Context, progress: _PullProgress | None = None) -> None:
    """Put the image into `facts`: the pinned one from the cache, else pulled."""
    workspace = context.workspace
    image = context.images.get(workspace.image_digest) if workspace.image_digest else None
    if image is None:
        image = _pull(context, progress or (lambda percent, message: None))
        if not workspace.image_digest:
            context.note_digest(workspace.image, image.digest)
    context.facts["image"] = image
    if workspace.image_digest != image.digest:
        update_row(workspace, image_digest=image.digest)


def _pull(context: Context, progress: Callable[[int, str], None]) -> Image:
    try:
        return context.images.ensure(
            image_reference(context.workspace),
            progress=connection_released_after()(progress),
            deadline=time.monotonic() + context.remaining(),
            cancelled=connection_released_after()(lambda: queue.is_cancelled(context.operation)),
        )
    except ImageCancelled:
        raise Cancelled(context.operation.pk) from None


class _PullProgress:
    """Writer of the progress of a pull to the row, at most twice a second."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.written = 0.0

    def __call__(self, percent: int, message: str) -> None:
        if time.monotonic() - self.written < PROGRESS_EVERY:
            return
        self.written = time.monotonic()
        span = PULL_TO - PULL_FROM
        self.context.record_provisioning(
            progress=PULL_FROM + span * max(0, min(100, percent)) // 100, message=message[:MAX_MESSAGE]
        )


def assign_machine(context: Context) -> None:
    """Give a warm machine to the workspace. If it is lost, or does not take it, the following steps make another one
    under the same id and address; so does a retry.
    """
    if not context.operation.params.get("warm") or context.operation.attempt > 1:
        return
    row = context.workspace
    try:
        with _described(row, context.facts["image"]) as spec:  # type: ignore[arg-type]
            context.driver.assign(spec)
    except BackendError as exc:
        logger.warning("the warm machine of %s is replaced: %s", row.pk, exc.message)
        if isinstance(exc, GuestUnreachable):
            _retire_alike(row)
        context.driver.destroy(row.pk)
        return
    context.facts[ASSIGNED] = True
    update_row(row, started_from=StartedFrom.POOL)


def _retire_alike(row: Workspace) -> None:
    """Retire the machines of the pool that wait beside one that did not answer: whether they would is known only when
    they are asked, and each create that asked one would wait as long. The keeper makes others.
    """
    sizes = (row.applied_cpu_millis, row.applied_memory_mb, row.applied_disk_size_mb)
    retire_alike(row.host_id or "", shape_of(row.image, *sizes))


def prepare_machine(context: Context) -> None:
    """Prepare disk, port and definition. The guest's identity is written to the row, so that the other processes reach
    it.
    """
    if context.facts.get(ASSIGNED):
        return
    context.record_provisioning(
        phase=ProvisioningPhase.PREPARING_DISK, progress=PREPARE_AT, message="Preparing the disk."
    )
    define_machine(context)


def define_machine(context: Context) -> None:
    """Define the machine as its row describes it; for create and every start."""
    row = context.workspace
    with _described(row, context.facts["image"], _first_disk(context)) as spec:  # type: ignore[arg-type]
        identity = context.driver.prepare(spec)
        with transaction.atomic():
            # The host key is stored beside the disk, so a new one means that the disk is new, too.
            former = row.ssh_host_key if row.provisioning_state == Provisioning.READY else ""
            if former not in ("", identity.ssh_host_key):
                record_activity(
                    row, "disk_lost", "Its files were missing on the host: the workspace starts with an empty disk."
                )
            columns = {"ssh_host_key": identity.ssh_host_key, "control_port": identity.control_port}
            update_row(row, **columns)


@contextmanager
def _described(row: Workspace, image: Image, snapshot: str = "") -> Iterator[MachineSpec]:
    """Yield the machine that the row describes now; a new one takes the disk of `snapshot`.

    If the block ends without an error, the machine has the policy, SSH access and workloads of the row.
    """
    row.refresh_from_db(fields=["ssh_enabled", "ssh_keys", "workloads", "updated_at"])  # during an operation, too
    workloads = list(row.workloads)
    with network.hold_current_policy(row):
        yield machine_spec(row, image, snapshot=snapshot)
        network.mark_policy_applied(row)
    mark_access_applied(row)
    mark_workloads_applied(row, workloads)


def _first_disk(context: Context) -> str:
    """Return the snapshot whose disk a new machine takes; empty for an empty disk, and for a machine that exists."""
    is_new = context.operation.kind == OperationKind.CREATE
    return str(context.operation.params.get("snapshot", "")) if is_new else ""


def is_to_start(context: Context) -> bool:
    """Return False for a machine that is made and stays off."""
    return bool(context.operation.params.get("start", True))


def start_machine(context: Context) -> None:
    if context.facts.get(ASSIGNED) or not is_to_start(context):
        return
    context.record_provisioning(phase=ProvisioningPhase.STARTING, progress=START_AT, message="Starting the machine.")
    launch_machine(context)


def launch_machine(context: Context) -> None:
    """Start the machine, from a snapshot's memory if the operation says so, and note how its process began.

    One that has a process keeps what was noted. Warm machines give their memory back first if the host has none.
    """
    try:
        began = _start(context)
    except CapacityExceeded:
        if not give_back_memory(context.driver, context.workspace.host_id or ""):
            raise
        began = _start(context)
    if began is not None:
        update_row(context.workspace, started_from=began)
    params = context.operation.params
    if params.get("cold"):
        text = "It was started from the snapshot's disk, without its memory, as requested."
        record_activity(context.workspace, "started_cold", text, actor=context.operation.actor)


def _start(context: Context) -> StartedFrom | None:
    params, machine_id = context.operation.params, context.workspace.pk
    if not params.get("memory"):
        return context.driver.start(machine_id)
    began = context.driver.load(machine_id, params["snapshot"])
    return StartedFrom.FORK if began is not None and params.get("fork") else began


def wait_ready(context: Context) -> None:
    if not is_to_start(context):
        return
    context.record_provisioning(
        phase=ProvisioningPhase.INITIALIZING,
        progress=INIT_AT,
        message="Waiting for the machine to finish its boot.",
    )
    wait_for_guest(context)


def wait_for_guest(context: Context) -> None:
    """Wait until the guest is ready. A main process that has exited already counts; its exit is settled afterwards."""
    timeout = min(context.remaining(), settings.ENV.ready_seconds)
    try:
        context.driver.wait_ready(context.workspace.pk, timeout)
    except MachineExited as exc:
        if exc.exit_code is None:
            raise


def complete_create(context: Context) -> None:
    """Write ready and provisioned in one commit. A machine that is not to be started is provisioned and `stopped`."""
    row, now, starts = context.workspace, timezone.now(), is_to_start(context)
    provisioned = {
        "provisioning_state": Provisioning.READY,
        "provisioning_phase": ProvisioningPhase.READY,
        "provisioning_progress": 100,
        "provisioning_message": "Ready.",
        "provisioning_updated_at": now,
        "provisioning_completed_at": now,
    }
    with transaction.atomic():
        lock_for_outcome(row)
        power = {**running_fields(row, now), "started_at": now} if starts else _off_fields(row)
        to = Status.RUNNING if starts else Status.STOPPED
        transition(row, to, leaving=frozenset({Status.CREATING}), **power, **provisioned)
        queue.finish_operation(context.operation, OperationState.SUCCEEDED)
        if starts:
            record_activity(row, "started", "The workspace is ready.", actor=context.operation.actor)
        else:
            record_activity(row, "made", "The machine is made and not started.", actor=context.operation.actor)
    if starts:
        after_start(context)


def _off_fields(row: Workspace) -> dict[str, Any]:
    """Return the columns of a machine that was made and stays off: only its removal can be due."""
    keeps_ttl = row.ttl_action == TtlAction.REMOVE
    return {"user_requested_stop": True, **({} if keeps_ttl else {"ttl_expires_at": None})}


STEPS = (
    ("begin", begin_create),
    ("pull_image", pull_image),
    ("assign_machine", assign_machine),
    ("prepare_machine", prepare_machine),
    ("start_machine", start_machine),
    ("wait_ready", wait_ready),
    ("complete", complete_create),
)


def prepare_retry(context: Context) -> None:
    """End the machine before a retry. One from a snapshot is removed: its guest may have changed the disk that the
    memory goes with.
    """
    if context.operation.params.get("snapshot"):
        context.driver.delete(context.workspace.pk)
    else:
        context.driver.destroy(context.workspace.pk)


def create_failed(context: Context, code: str, message: str) -> None:
    """Remove the machine. The row stays with the reason and can be retried, unless a delete was first."""
    _remove_quietly(context)
    with transaction.atomic():
        with suppress(TransitionLost):
            mark_failed(context.workspace, code, message)
        queue.finish_operation(context.operation, OperationState.FAILED, code=code, message=message)


def mark_failed(workspace: Workspace, code: str, message: str) -> None:
    """Write the failure of a creation into the row. Raise TransitionLost if a delete was first."""
    now = timezone.now()
    transition(
        workspace,
        Status.FAILED,
        leaving=CREATING,
        error_code=code,
        error_message=message,
        provisioning_state=Provisioning.FAILED,
        provisioning_phase=ProvisioningPhase.FAILED,
        provisioning_message=message[:MAX_MESSAGE],
        provisioning_error_code=code,
        provisioning_error=message,
        provisioning_updated_at=now,
        provisioning_completed_at=now,
    )
    record_activity(workspace, "create_failed", message)


def create_cancelled(context: Context) -> None:
    """Remove the machine; the delete that follows removes the row and what is left."""
    _remove_quietly(context)
    finish_cancelled(context)


def _remove_quietly(context: Context) -> None:
    try:
        context.driver.delete(context.workspace.pk)
    except BackendError as exc:
        # The row is failed or deleting, so reconcile finds the machine and removes it.
        record_activity(context.workspace, "cleanup_postponed", exc.message)
