"""Reinstall: the disk is reset to the image. Params: was_running; before and wanted {column: value}."""

from __future__ import annotations

from django.utils import timezone

from vmbackend.driver import MachineState
from workspaces.audit import record
from workspaces.host.context import Context
from workspaces.host.outcomes import (
    fail_as,
    fail_as_found,
    off_and_failed,
    restore_sizes,
    run_on,
)
from workspaces.host.steps.create import ensure_image, prepare, wait_for_guest
from workspaces.host.steps.power import shut_down, start_machine
from workspaces.host.steps.relaunch import runs_again
from workspaces.models import Workspace
from workspaces.states import Status


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
        if context.operation.params["was_running"] and runs_again(context):
            fail_as(context, Status.RUNNING, "overlay_delete_failed", told)
        else:
            off_and_failed(context, "overlay_delete_failed", told)
