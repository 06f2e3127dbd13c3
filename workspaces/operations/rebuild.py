"""Resize, reinstall and destroy: what takes a machine apart and puts it together again."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, CapacityExceeded
from workspaces.models import Workspace
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.operations.context import Context
from workspaces.operations.create import ensure_image, prepare, wait_for_guest
from workspaces.operations.ends import (
    destroy_quietly,
    fail_as,
    fail_as_found,
    off_and_failed,
    restore_sizes,
    run_on,
    succeed,
)
from workspaces.operations.power import note_start, shut_down, start_machine
from workspaces.services.activity import record
from workspaces.states import Status, transition

# Resize. params: before and wanted {column: value}, was_running


def check_room(context: Context) -> None:
    """Refuse before the machine is touched. Raises CapacityExceeded."""
    if context.facts.get("applied"):
        return  # by an attempt that died; it has the room
    before, row, free = context.operation.params["before"], context.workspace, context.driver.capacity()
    more_disk = row.applied_disk_size_mb - before["applied_disk_size_mb"]
    more_memory = row.applied_memory_mb - before["applied_memory_mb"]
    if more_disk > free.disk_free_mb:
        raise CapacityExceeded(f"The host has no {more_disk} MiB of disk to spare.")
    if more_memory > free.memory_free_mb:
        raise CapacityExceeded(f"The host has no {more_memory} MiB of memory to spare.")


def apply_sizes(context: Context) -> None:
    context.remember("down")
    ensure_image(context)
    prepare(context)
    context.remember("applied")


def relaunch(context: Context) -> None:
    if context.operation.params["was_running"]:
        start_machine(context)


def wait_relaunched(context: Context) -> None:
    if context.operation.params["was_running"]:
        wait_for_guest(context)


def complete_resize(context: Context) -> None:
    sentence = "The new resources were applied."
    if context.operation.params["was_running"]:
        run_on(context, "resized", sentence, started_at=timezone.now())
    else:
        succeed(context, Status.STOPPED, "resized", sentence)


RESIZE_STEPS = (
    ("check_room", check_room),
    ("shut_down", shut_down),
    ("apply_sizes", apply_sizes),
    ("relaunch", relaunch),
    ("wait_ready", wait_relaunched),
    ("complete", complete_resize),
)


def resize_failed(context: Context, code: str, sentence: str) -> None:
    """Sizes that were not applied are taken back, and a machine that ran is started with the former ones."""
    if not context.facts.get("applied"):
        restore_sizes(context.workspace, context.operation.params)
    if not context.facts.get("down"):
        fail_as_found(context, code, sentence)
    elif context.operation.params["was_running"] and not context.facts.get("applied") and _runs_again(context):
        fail_as(context, Status.RUNNING, code, sentence)
    else:
        off_and_failed(context, code, sentence)


def _runs_again(context: Context) -> bool:
    """The machine as it was, started once more after a step that changed nothing failed."""
    try:
        ensure_image(context)
        prepare(context)
        context.driver.start(context.workspace.pk)
        wait_for_guest(context)
    except BackendError as exc:
        record(context.workspace, "relaunch_failed", exc.message)
        return False
    note_start(context.workspace, timezone.now())
    return True


# Reinstall. params: was_running; before and wanted as above


def reset_disk(context: Context) -> None:
    """A machine that its host lost is made known again first."""
    context.remember("down")
    if context.driver.state(context.workspace.pk) is MachineState.ABSENT:
        ensure_image(context)
        prepare(context)
    context.driver.reset_disk(context.workspace.pk)
    context.remember("erased")


def forget_access(context: Context) -> None:
    """SSH goes with the file system; what is kept is listed in the specification (Lifecycle and power)."""
    Workspace.objects.filter(pk=context.workspace.pk).update(ssh_enabled=False)
    context.workspace.ssh_enabled = False
    record(context.workspace, "erased", "The file system was reset to the image.", actor=context.operation.actor)


def start_anew(context: Context) -> None:
    ensure_image(context)
    prepare(context)
    start_machine(context)


def complete_reinstall(context: Context) -> None:
    run_on(context, "reinstalled", "The workspace was reinstalled.", started_at=timezone.now())


REINSTALL_STEPS = (
    ("shut_down", shut_down),
    ("reset_disk", reset_disk),
    ("forget_access", forget_access),
    ("start_machine", start_anew),
    ("wait_ready", wait_for_guest),
    ("complete", complete_reinstall),
)


def reinstall_failed(context: Context, code: str, sentence: str) -> None:
    """The specification's errors: stop_failed, overlay_delete_failed (started again), relaunch_failed (call start)."""
    if context.facts.get("erased"):
        off_and_failed(context, "relaunch_failed", f"The file system was reset, but not started: {sentence}")
    elif not context.facts.get("down"):
        restore_sizes(context.workspace, context.operation.params)
        fail_as_found(context, "stop_failed", f"It could not be stopped; nothing was reset: {sentence}")
    else:
        told = f"The file system was not reset: {sentence}"
        if context.operation.params["was_running"] and _runs_again(context):
            fail_as(context, Status.RUNNING, "overlay_delete_failed", told)
        else:
            off_and_failed(context, "overlay_delete_failed", told)


# Destroy


def remove_machine(context: Context) -> None:
    context.driver.delete(context.workspace.pk)


def complete_destroy(context: Context) -> None:
    """The address and the sizes go back; the record stays until it is deleted."""
    with transaction.atomic():
        transition(
            context.workspace,
            Status.DESTROYED,
            leaving=frozenset({Status.STOPPING}),
            started_at=None,
            ip=None,
            ssh_host_key="",
            ssh_enabled=False,
            ttl_expires_at=None,
            idle_due_at=None,
            memory_expires_at=None,
            restart_due_at=None,
            error_code="",
            error_message="",
        )
        queue.finish(context.operation, OperationState.SUCCEEDED)
        record(context.workspace, "destroyed", "The virtual machine was destroyed.", actor=context.operation.actor)


DESTROY_STEPS = (("remove_machine", remove_machine), ("complete", complete_destroy))


def destroy_failed(context: Context, code: str, sentence: str) -> None:
    """What is left of the machine is off; destroy or delete finish it."""
    destroy_quietly(context)
    fail_as_found(context, code, sentence)
