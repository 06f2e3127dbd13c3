"""Reinstall: the disk is reset to the image. Params: was_running; before and wanted {column: value}."""

from __future__ import annotations

from django.utils import timezone

from vmbackend.driver import MachineState
from workspaces.audit import record_activity
from workspaces.host.context import Context
from workspaces.host.outcomes import (
    fail_as_observed,
    fail_stopped,
    fail_with_status,
    restore_sizes,
    succeed_running,
)
from workspaces.host.steps.create import define_machine, ensure_image, wait_for_guest
from workspaces.host.steps.power import shut_down, start_machine
from workspaces.host.steps.relaunch import relaunch_unchanged
from workspaces.host.steps.room import CHECKING, check_capacity
from workspaces.rows import update_row
from workspaces.states import Status


def reset_disk(context: Context) -> None:
    """Reset the disk; a machine that the host lost is defined again first."""
    context.record_fact("down")
    if context.driver.state(context.workspace.pk) is MachineState.ABSENT:
        ensure_image(context)
        define_machine(context)
    context.driver.reset_disk(context.workspace.pk)
    context.record_fact("erased")


def disable_ssh(context: Context) -> None:
    """Disable SSH access with the reset. The specification lists what is kept (Lifecycle and power)."""
    update_row(context.workspace, ssh_enabled=False)
    record_activity(
        context.workspace, "erased", "The file system was reset to the image.", actor=context.operation.actor
    )


def start_reinstalled(context: Context) -> None:
    ensure_image(context)
    define_machine(context)
    start_machine(context)


def complete_reinstall(context: Context) -> None:
    succeed_running(context, "reinstalled", "The workspace was reinstalled.", started_at=timezone.now())


REINSTALL_STEPS = (
    ("check_capacity", check_capacity),
    ("shut_down", shut_down),
    ("reset_disk", reset_disk),
    ("disable_ssh", disable_ssh),
    ("start_machine", start_reinstalled),
    ("wait_ready", wait_for_guest),
    ("complete", complete_reinstall),
)


def reinstall_failed(context: Context, code: str, message: str) -> None:
    """End with the specification's errors: stop_failed, overlay_delete_failed (started again), relaunch_failed (call
    start).
    """
    if context.facts.get("erased"):
        fail_stopped(context, "relaunch_failed", f"The file system was reset, but not started: {message}")
    elif not context.facts.get("down"):
        restore_sizes(context.workspace, context.operation.params)
        if context.facts.get(CHECKING):
            fail_as_observed(context, code, message)
            return
        fail_as_observed(context, "stop_failed", f"It could not be stopped; nothing was reset: {message}")
    else:
        reason = f"The file system was not reset: {message}"
        if context.operation.params["was_running"] and relaunch_unchanged(context):
            fail_with_status(context, Status.RUNNING, "overlay_delete_failed", reason)
        else:
            fail_stopped(context, "overlay_delete_failed", reason)
