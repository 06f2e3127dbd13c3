"""Reconciling the rows of one host with the machines of its hypervisor."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from common import counters
from common.batches import batched
from vmbackend import services as hosts
from vmbackend.driver import Inventory, MachineEnd, MachineState, StopReason
from vmbackend.errors import BackendError
from workspaces.audit import record_activity
from workspaces.counted import CORRECTIONS
from workspaces.crud.services import workspace_delete
from workspaces.host.machine_events import handle_machine_end, memory_expiry
from workspaces.host.moved import moving_machines
from workspaces.host.outcomes import STATUS_OF, machine_status, rest_fields, rest_status, running_fields
from workspaces.host.ownership import expire_orphans, orphan_changes, set_gone_aside, set_strays_aside, take_all_back
from workspaces.host.runtime import HostRuntime
from workspaces.host.steps.create import mark_failed
from workspaces.models import Operation, WarmMachine, Workspace
from workspaces.models.operation import LIVE
from workspaces.operations import queue
from workspaces.states import CREATING, TRANSITIONAL, Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

HOLDS_MEMORY = frozenset({MachineState.RUNNING, MachineState.PAUSED, MachineState.ASLEEP})
# Rows without a process; a machine that runs for one is ended.
WANT_OFF = frozenset({Status.STOPPED, Status.FAILED, Status.DESTROYED})
# Rows without anything on the host.
WANT_NOTHING = frozenset({Status.FAILED, Status.DESTROYED})
# Seconds in which reports of an end must be processed, from the time at which the machine had no process.
REPORT_SECONDS = 5.0
REPORT_POLL_SECONDS = 0.05
# All of a host's rows at once would stay in the process's memory.
ROWS_AT_ONCE = 100


def reconcile_machines(runtime: HostRuntime) -> int:
    """Reconcile once. Return how many rows and machines were corrected.

    The inventory is read before the rows: a machine without a row had none before, either. Workspaces with an operation
    in flight are skipped.
    """
    inventory = runtime.driver.inventory()
    if hosts.is_host_gone(runtime.host_id):
        return set_gone_aside(runtime, inventory.ids())
    # Before the workspaces: the machine that a create takes in between is in one of both.
    moving = moving_machines(runtime.host_id)
    warm = set(WarmMachine.objects.filter(host_id=runtime.host_id).values_list("pk", flat=True))
    busy = set(
        Operation.objects.filter(queue=runtime.queue_name, state__in=LIVE).values_list("workspace_id", flat=True)
    )
    epochs = dict(Workspace.objects.filter(host_id=runtime.host_id).values_list("pk", "epoch"))
    repaired = set_strays_aside(runtime, _strays(inventory, epochs, warm) - busy - moving)
    if repaired:
        inventory = runtime.driver.inventory()
    for part in batched([key for key in epochs if key not in busy], ROWS_AT_ONCE):
        rows = Workspace.objects.filter(pk__in=part, host_id=runtime.host_id).defer("env", "workloads")
        for row in rows.select_related("account", "host"):
            repaired += _reconcile_row(runtime, row, inventory)
    orphans = _remove_orphans(runtime, inventory, set(epochs) | busy | warm | moving)
    repaired += take_all_back(runtime)
    expire_orphans(runtime)
    counters.record_additions(CORRECTIONS.of(repaired, "workspace") + CORRECTIONS.of(orphans, "orphan"))
    return repaired + orphans


def _strays(inventory: Inventory, epochs: Mapping[str, int], warm: set[str]) -> set[str]:
    """Return the machines of this host whose workspace has another epoch, or may be on another host.

    `epochs`: those of this host's rows.
    """
    others = inventory.epochs.keys() - epochs.keys() - warm
    moved = Workspace.objects.filter(pk__in=others).exclude(host_id=None).values_list("pk", flat=True)
    return set(moved) | {key for key, epoch in epochs.items() if inventory.epochs.get(key, epoch) not in (0, epoch)}


def resume_paused_machines(runtime: HostRuntime) -> int:
    """Resume the paused machines of running workspaces, for example those that waited for room on the host's disk.

    Return how many. Workspaces with an operation in flight are left to it.
    """
    inventory = runtime.driver.inventory()
    paused = [key for key, state in inventory.domains.items() if state is MachineState.PAUSED]
    rows = Workspace.objects.filter(pk__in=paused, host_id=runtime.host_id, status=Status.RUNNING)
    resumed = 0
    for row in rows.select_related("account", "host"):
        try:
            resumed += _follow_machine(runtime, row, inventory)
        except (TransitionLost, BackendError, Workspace.DoesNotExist) as exc:
            logger.warning("%s could not be resumed: %s", row.pk, exc)  # reconcile tries again
    return resumed


def _reconcile_row(runtime: HostRuntime, row: Workspace, inventory: Inventory) -> bool:
    state = inventory.domains.get(row.pk, MachineState.ABSENT)
    status = Status(row.status)
    try:
        if status is Status.DELETING:
            workspace_delete(workspace=row, actor="system")
            return True
        if status in TRANSITIONAL:
            return _settle_stuck(row, state)
        if status in (Status.RUNNING, Status.PAUSED, Status.SLEEPING):
            return STATUS_OF[state] is not status and _follow_machine(runtime, row, inventory)
        if status is Status.LOST and state in HOLDS_MEMORY:
            return _follow_machine(runtime, row, inventory)
        if status in WANT_OFF:
            return _end_unwanted(runtime, row, state, inventory)
    except (TransitionLost, BackendError) as exc:
        logger.warning("%s could not be reconciled: %s", row.pk, exc)
    except Workspace.DoesNotExist:
        pass  # deleted since the rows were read
    return False


def _follow_machine(runtime: HostRuntime, row: Workspace, inventory: Inventory) -> bool:
    """Settle a machine that ended, or correct one that is paused or runs, if it is in another state than its row.
    Return whether anything was corrected.
    """
    row.refresh_from_db()
    # Read again: an operation may have finished since the inventory was taken.
    state = runtime.driver.state(row.pk)
    if row.status in TRANSITIONAL or STATUS_OF[state] == row.status or queue.live_operation(row):
        return False
    match Status(row.status), state:
        case Status.SLEEPING, MachineState.RUNNING | MachineState.PAUSED:
            _resume_unless_short(runtime, row)
            _recover(row, Status.RUNNING, "The machine was found running although the workspace was asleep.")
        case Status.LOST, MachineState.RUNNING | MachineState.PAUSED:
            _recover(row, Status.RUNNING, "The machine was found again.")
        case Status.LOST, MachineState.ASLEEP:
            _recover(row, Status.SLEEPING, "The machine was found again, asleep.", memory_expires_at=memory_expiry(row))
        case Status.SLEEPING, _:
            gone = {"started_at": None, "memory_expires_at": None}
            _recover(row, Status.STOPPED, "The saved memory is gone; the disk is as it was.", **gone)
        case Status.RUNNING, MachineState.PAUSED if runtime.disk_guard.is_short:
            return False  # it waits for room on the host's disk
        case Status.RUNNING, MachineState.PAUSED:
            _resume_machine(runtime, row)
            record_activity(row, "recovered", "The machine was paused and was resumed.")
        case Status.PAUSED, MachineState.RUNNING:
            runtime.driver.pause(row.pk)
            record_activity(row, "recovered", "The machine ran although the workspace was paused; it was paused again.")
        case _:
            _wait_for_reports(runtime, row, inventory)
            handle_machine_end(row, runtime.driver, _found_reason)
    return True


def _wait_for_reports(runtime: HostRuntime, row: Workspace, inventory: Inventory) -> None:
    """Wait until the driver knows why the machine ended, but no longer than REPORT_SECONDS after the inventory was
    read, as a report may be lost.
    """
    while not runtime.driver.last_end(row.pk).is_final and time.monotonic() < inventory.read_at + REPORT_SECONDS:
        time.sleep(REPORT_POLL_SECONDS)


def _found_reason(end: MachineEnd) -> StopReason:
    """Return why a machine ended whose event was lost, or is not handled yet."""
    return end.reason if end.reason in (StopReason.SHUTDOWN, StopReason.PANICKED) else StopReason.CRASHED


def _resume_machine(runtime: HostRuntime, row: Workspace) -> None:
    """Resume a paused machine, and renew its guest's clock and random pool as after every wake."""
    runtime.driver.resume(row.pk)
    try:
        runtime.driver.resync_guest(row.pk)
    except BackendError as exc:
        record_activity(row, "clock_not_set", f"The guest's clock could not be set: {exc.message}")


def _resume_unless_short(runtime: HostRuntime, row: Workspace) -> None:
    """Resume the machine, unless the host's disk has no room: then it waits as the machine of a running workspace."""
    if not runtime.disk_guard.is_short:
        _resume_machine(runtime, row)


def _recover(row: Workspace, to: Status, message: str, **fields: Any) -> None:
    if to is Status.RUNNING:
        fields |= {**running_fields(row), "started_at": row.started_at or timezone.now()}
    with transaction.atomic():
        transition(row, to, leaving=frozenset({Status(row.status)}), **fields)
        record_activity(row, "recovered", message)


def _settle_stuck(row: Workspace, state: MachineState) -> bool:
    """Settle a transitional status without an operation: the operation ended, and its transition was lost."""
    row.refresh_from_db(fields=["status"])
    if row.status not in TRANSITIONAL or Operation.objects.filter(workspace=row, state__in=LIVE).exists():
        return False
    message = "The operation was interrupted."
    if row.status in CREATING:
        mark_failed(row, "internal_error", message)
    else:
        last = Operation.objects.filter(workspace=row).order_by("-created_at", "-pk").first()
        to = rest_status(row, machine_status(state, last))
        # Only from the status just read: an operation that ended since has set the right one.
        stuck = frozenset({Status(row.status)})
        error = {"error_code": "internal_error", "error_message": message}
        transition(row, to, leaving=stuck, **rest_fields(row, to), **error)
        record_activity(row, "recovered", f"{message} The workspace is {to}.")
    return True


def _end_unwanted(runtime: HostRuntime, row: Workspace, state: MachineState, inventory: Inventory) -> bool:
    if state not in HOLDS_MEMORY and not (row.status in WANT_NOTHING and row.pk in inventory.ids()):
        return False
    # Read again, as `_follow_machine` does: an operation that finished since may have removed it.
    row.refresh_from_db(fields=["status"])
    if row.status not in WANT_OFF or queue.live_operation(row):
        return False
    state = runtime.driver.state(row.pk)
    if row.status in WANT_NOTHING and row.pk in runtime.driver.inventory().ids():
        runtime.driver.delete(row.pk)
        record_activity(row, "leftover_removed", "The remains of the machine were removed.")
        return True
    if state in HOLDS_MEMORY or row.pk in inventory.saved:
        runtime.driver.destroy(row.pk)
        record_activity(row, "ended", f"The machine was {state} although the workspace is {row.status}; it was ended.")
        return True
    return False


def _remove_orphans(runtime: HostRuntime, inventory: Inventory, known: set[str]) -> int:
    """Remove orphans, which belong to no row, after the grace time and up to the cap per hour. The disk of one that was
    a workspace's is kept: its row may have been lost.
    """
    now = time.monotonic()
    orphans = inventory.ids() - known
    runtime.orphan_since = {key: runtime.orphan_since.get(key, now) for key in orphans}
    removed = 0
    for key, since in sorted(runtime.orphan_since.items()):
        if now - since < settings.ENV.orphan_grace_seconds:
            continue
        if any(model.objects.filter(pk=key, host_id=runtime.host_id).exists() for model in (WarmMachine, Workspace)):
            continue
        if not runtime.allow_orphan_removal(settings.ENV.orphan_removals_per_hour):
            logger.error("orphans: the cap on removals per hour is reached; %s remain for now", len(orphans) - removed)
            break
        removed += _remove_orphan(runtime, key)
    return removed


def _remove_orphan(runtime: HostRuntime, key: str) -> bool:
    try:
        with orphan_changes:  # one that is put back between both calls would be deleted
            epoch = runtime.driver.epoch_of(key)
            if epoch:
                runtime.driver.set_aside(key)
            # What no record names, such as a port or memory in libvirt's folder.
            runtime.driver.delete(key)
    except BackendError as exc:
        logger.warning("the orphan %s could not be removed: %s", key, exc)
        return False
    done = "set aside" if epoch else "removed"
    logger.warning("orphan %s was %s: it belongs to no workspace of this host", key, done)
    return True
