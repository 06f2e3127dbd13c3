"""Resize: new sizes are applied. Params: before and wanted {column: value}, was_running."""

from __future__ import annotations

from django.utils import timezone

from workspaces.host.context import Context
from workspaces.host.outcomes import (
    fail_as_observed,
    fail_stopped,
    fail_with_status,
    restore_sizes,
    succeed_running,
    succeed_with_status,
)
from workspaces.host.steps.create import define_machine, ensure_image, wait_for_guest
from workspaces.host.steps.power import shut_down, start_machine
from workspaces.host.steps.relaunch import relaunch_unchanged
from workspaces.host.steps.room import check_capacity
from workspaces.states import Status


def apply_sizes(context: Context) -> None:
    context.record_fact("down")
    ensure_image(context)
    define_machine(context)
    context.record_fact("applied")


def relaunch_resized(context: Context) -> None:
    if context.operation.params["was_running"]:
        start_machine(context)


def wait_relaunched(context: Context) -> None:
    if context.operation.params["was_running"]:
        wait_for_guest(context)


def complete_resize(context: Context) -> None:
    message = "The new resources were applied."
    if context.operation.params["was_running"]:
        succeed_running(context, "resized", message, started_at=timezone.now())
    else:
        succeed_with_status(context, Status.STOPPED, "resized", message)


RESIZE_STEPS = (
    ("check_capacity", check_capacity),
    ("shut_down", shut_down),
    ("apply_sizes", apply_sizes),
    ("relaunch", relaunch_resized),
    ("wait_ready", wait_relaunched),
    ("complete", complete_resize),
)


def resize_failed(context: Context, code: str, message: str) -> None:
    """Restore sizes that were not applied, and start a machine that ran with the former ones."""
    if not context.facts.get("applied"):
        restore_sizes(context.workspace, context.operation.params)
    if not context.facts.get("down"):
        fail_as_observed(context, code, message)
    elif context.operation.params["was_running"] and not context.facts.get("applied") and relaunch_unchanged(context):
        fail_with_status(context, Status.RUNNING, code, message)
    else:
        fail_stopped(context, code, message)
