"""Sleep (memory to the host's disk) and wake."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, SavedMemoryUnusable
from workspaces import last_used, route_cache
from workspaces.audit import record_activity
from workspaces.guests import ssh_is_open
from workspaces.host import machine_events
from workspaces.host.context import Context
from workspaces.host.network_policy import apply_policy
from workspaces.host.outcomes import (
    destroy_machine,
    fail_as_observed,
    lock_for_outcome,
    running_fields,
    succeed_running,
    succeed_with_status,
)
from workspaces.host.steps.create import ensure_image, launch_machine, wait_for_guest
from workspaces.host.steps.power import prepare_stopped, resync_guest
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition


class NotIdle(Exception):
    """Sign that the workspace is in use after all, or that its idle policy was switched off."""


def check_idle(context: Context) -> None:
    """Look for uses that are not recorded, before the memory is written: open SSH sessions, and connections to public
    ports that were opened long ago (requests, WebSockets). Raise NotIdle.
    """
    row = context.workspace
    if not context.operation.params.get("idle") or context.driver.state(row.pk) is MachineState.ASLEEP:
        return  # requested by its owner, or an earlier attempt has written the memory
    switched_off = not row.suspend_after
    if context.driver.count_connections(row.pk):
        last_used.record_use(row.pk)
    if switched_off or last_used.is_in_use(row.pk, row.suspend_after) or ssh_is_open(row):
        raise NotIdle


def save_memory(context: Context) -> None:
    # The transition to `suspending` has invalidated the routes, unless its process died right then. A request that the
    # edge sends to the machine from its cache would not wake it.
    route_cache.invalidate_routes_now(context.workspace)
    context.driver.sleep(context.workspace.pk)


def complete_sleep(context: Context) -> None:
    with transaction.atomic():
        lock_for_outcome(context.workspace)
        succeed_with_status(
            context,
            Status.SLEEPING,
            "slept",
            "The workspace was put to sleep; its memory is kept.",
            idle_due_at=None,
            memory_expires_at=machine_events.memory_expiry(context.workspace),
        )


SLEEP_STEPS = (("check_idle", check_idle), ("save_memory", save_memory), ("complete", complete_sleep))


def stay_awake(context: Context) -> None:
    """Cancel the sleep: the workspace continues to run, and its idle time starts again."""
    with transaction.atomic():
        lock_for_outcome(context.workspace)
        fields = running_fields(context.workspace)
        for name in ("ttl_expires_at", "ttl_length"):
            fields.pop(name)
        with suppress(TransitionLost):  # a delete has changed the status already
            transition(context.workspace, Status.RUNNING, leaving=frozenset({Status.SUSPENDING}), **fields)
        queue.finish_operation(
            context.operation, OperationState.CANCELLED, code="in_use", message="The workspace is in use."
        )
    machine_events.settle_machine_end(context.operation, context.driver)


def sleep_failed(context: Context, code: str, message: str) -> None:
    """Write the failure. The workspace continues to run, for at least another idle time."""
    row = context.workspace
    again = timezone.now() + timedelta(seconds=row.suspend_after) if row.suspend_after else None
    fail_as_observed(context, code, message, idle_due_at=again)


def load_memory(context: Context) -> None:
    """Load the saved memory. If it cannot be used, that is recorded and the workspace starts cold.

    At a retry, or after a reboot of the host, the machine may be off or running already.
    """
    try:
        if context.driver.state(context.workspace.pk) in (MachineState.OFF, MachineState.ABSENT):
            context.record_fact("cold")
        else:
            _apply_missed_policy(context)
            launch_machine(context)
    except SavedMemoryUnusable as exc:
        context.record_fact("cold")
        record_activity(context.workspace, "memory_lost", exc.message)


def _apply_missed_policy(context: Context) -> None:
    """Apply a network policy that was changed while the machine could not be told: when it moved, say. It never goes on
    under a former one. Raise BackendUnavailable.
    """
    if context.workspace.network_stale and (waits := apply_policy(context.driver, context.workspace.pk)):
        raise BackendUnavailable(waits)


def start_cold(context: Context) -> None:
    """Boot the machine if its memory could not be loaded. A guest that was ready when it fell asleep still counts as
    ready.
    """
    if not context.facts.get("cold"):
        return
    ensure_image(context)
    prepare_stopped(context)
    launch_machine(context)
    wait_for_guest(context)


def complete_wake(context: Context) -> None:
    if context.facts.get("cold"):
        message = "The saved memory could not be used: the workspace was started cold; its disk is unchanged."
        succeed_running(context, "started_cold", message, started_at=timezone.now())
    else:
        # There is no start time if a stop during its sleep failed.
        started_at = context.workspace.started_at or timezone.now()
        succeed_running(context, "woke", "The workspace woke up.", started_at=started_at)


def wake_failed(context: Context, code: str, message: str) -> None:
    """Write the failure: still asleep, or stopped if the workspace had to start cold."""
    if context.facts.get("cold"):
        destroy_machine(context)
    fail_as_observed(context, code, message)


WAKE_STEPS = (
    ("load_memory", load_memory),
    ("start_cold", start_cold),
    ("resync_guest", resync_guest),
    ("complete", complete_wake),
)
