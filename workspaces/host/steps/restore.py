"""Restore: disk and memory become those of a snapshot. Params: snapshot, memory, cold; was_running; before and wanted
{column: value}.
"""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import MachineState
from workspaces.host.context import Context
from workspaces.host.outcomes import (
    after_start,
    fail_as_observed,
    fail_stopped,
    fail_with_status,
    lock_for_outcome,
    restore_sizes,
    running_fields,
    succeed_with_status,
)
from workspaces.host.snapshot_memory import require_memory_fits
from workspaces.host.steps.create import define_machine, ensure_image, launch_machine, wait_for_guest
from workspaces.host.steps.power import record_start
from workspaces.host.steps.relaunch import relaunch_unchanged
from workspaces.host.steps.room import check_capacity
from workspaces.models import Snapshot
from workspaces.snapshot_rows import publish_snapshot_event
from workspaces.states import Status


def check_snapshot(context: Context) -> None:
    """Refuse before the machine is touched. Raise SnapshotNotFound, SnapshotNotMade, SnapshotIncompatible, and what
    `check_capacity` raises.
    """
    if not context.facts.get("replaced"):
        require_memory_fits(context)
        check_capacity(context)


def end_machine(context: Context) -> None:
    """End the machine at once: what its programs would write is lost with its disk."""
    context.record_fact("down")
    context.driver.destroy(context.workspace.pk)
    record_start(context.workspace, None)


def take_disk(context: Context) -> None:
    """Replace the disk. The machine is defined first, with a disk that is large enough."""
    ensure_image(context)
    define_machine(context)
    context.driver.take_disk(context.workspace.pk, context.operation.params["snapshot"])
    context.record_fact("replaced")


def start_restored(context: Context) -> None:
    """Load the memory, or boot."""
    if context.driver.state(context.workspace.pk) in (MachineState.OFF, MachineState.ABSENT):
        define_machine(context)  # the disk that was taken grows to its size
    launch_machine(context)


def complete_restore(context: Context) -> None:
    row, params = context.workspace, context.operation.params
    snapshot = Snapshot.objects.filter(pk=params["snapshot"]).first()
    source = {"source_snapshot_id": params["snapshot"], "restart_count": 0}
    with transaction.atomic():
        lock_for_outcome(row)
        fields = {**running_fields(row), "started_at": timezone.now(), **source}
        succeed_with_status(context, Status.RUNNING, "restored", _message(snapshot), **fields)
        if snapshot is not None:
            data = {"workspace_id": row.pk, "snapshot_id": snapshot.pk, "memory": bool(params["memory"])}
            publish_snapshot_event(snapshot, "workspace.restored", data)
    after_start(context)


def _message(snapshot: Snapshot | None) -> str:
    return f"Its state is that of {snapshot.name} ({snapshot.pk})." if snapshot else "Its state is that of a snapshot."


RESTORE_STEPS = (
    ("check_snapshot", check_snapshot),
    ("end_machine", end_machine),
    ("take_disk", take_disk),
    ("start_machine", start_restored),
    ("wait_ready", wait_for_guest),
    ("complete", complete_restore),
)


def restore_failed(context: Context, code: str, message: str) -> None:
    """Write the failure: as before if the machine was not touched; started again, or stopped, if its disk was not
    replaced; else stopped, with the snapshot's disk.
    """
    params = context.operation.params
    if context.facts.get("replaced"):
        fail_stopped(context, code, message)
        return
    restore_sizes(context.workspace, params)
    if not context.facts.get("down"):
        fail_as_observed(context, code, message)
    elif params["was_running"] and _relaunch(context):
        fail_with_status(context, Status.RUNNING, code, message)
    else:
        fail_stopped(context, code, message)


def _relaunch(context: Context) -> bool:
    """Boot the machine from its own disk. Return False if that fails, too."""
    context.operation.params = {**context.operation.params, "memory": False, "cold": False}
    return relaunch_unchanged(context)
