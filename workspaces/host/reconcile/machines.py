"""Desired against actual, on one host: what each row wants and what the hypervisor has."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from vmbackend.driver import Inventory, MachineState, StopReason
from vmbackend.errors import BackendError
from workspaces.audit import record
from workspaces.crud.services import workspace_delete
from workspaces.host.machine_events import handle_machine_end, memory_kept_until
from workspaces.host.outcomes import STATUS_OF, rest_fields, rest_status, running_fields
from workspaces.host.runtime import HostRuntime
from workspaces.host.steps.create import mark_failed
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.operations import queue
from workspaces.states import CREATING, TRANSITIONAL, Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

HOLDS_MEMORY = frozenset({MachineState.RUNNING, MachineState.PAUSED, MachineState.ASLEEP})
# Rows that want no process; a machine that runs for one is ended.
WANT_OFF = frozenset({Status.STOPPED, Status.FAILED, Status.DESTROYED})
# Rows that want nothing on the host at all.
WANT_NOTHING = frozenset({Status.FAILED, Status.DESTROYED})


def reconcile_machines(side: HostRuntime) -> int:
    """One pass. Returns how many things were put right.

    The inventory is read before the rows: a machine whose row is not there then was there without one.
    Workspaces with an operation in flight are left to it.
    """
    inventory = side.driver.inventory()
    busy = set(Operation.objects.filter(queue=side.queue_name, state__in=LIVE).values_list("workspace_id", flat=True))
    rows = {
        row.pk: row
        for row in Workspace.objects.filter(host_id=side.name)
        .select_related("account", "host")
        .defer("env", "workloads")
        .iterator(500)
    }
    mended = 0
    for key, row in rows.items():
        if key not in busy:
            mended += _mend(side, row, inventory)
    return mended + _leftovers(side, inventory, set(rows) | busy)


def _mend(side: HostRuntime, row: Workspace, inventory: Inventory) -> bool:
    state = inventory.domains.get(row.pk, MachineState.ABSENT)
    status = Status(row.status)
    try:
        if status is Status.DELETING:
            workspace_delete(workspace=row, actor="system")
            return True
        if status in TRANSITIONAL:
            return _unstick(row, state)
        if status in (Status.RUNNING, Status.PAUSED, Status.SLEEPING):
            return STATUS_OF[state] is not status and _adopt(side, row)
        if status is Status.LOST and state in HOLDS_MEMORY:
            return _adopt(side, row)
        if status in WANT_OFF:
            return _end_unwanted(side, row, state, inventory)
    except (TransitionLost, BackendError) as exc:
        logger.warning("reconcile %s: %s", row.pk, exc)
    return False


def _adopt(side: HostRuntime, row: Workspace) -> bool:
    """The machine is otherwise than its row says. What ended is settled; what stands still or runs on is put right."""
    row.refresh_from_db()
    # Ask again: the inventory may be older than an operation that finished since.
    state = side.driver.state(row.pk)
    if row.status in TRANSITIONAL or STATUS_OF[state] == row.status or queue.live_operation(row):
        return False
    match Status(row.status), state:
        case Status.SLEEPING, MachineState.RUNNING | MachineState.PAUSED:
            _go_on(side, row)
            _move(row, Status.RUNNING, "It was found running although it was to sleep.")
        case Status.LOST, MachineState.RUNNING | MachineState.PAUSED:
            _move(row, Status.RUNNING, "The machine was found again.")
        case Status.LOST, MachineState.ASLEEP:
            _move(
                row, Status.SLEEPING, "The machine was found again, asleep.", memory_expires_at=memory_kept_until(row)
            )
        case Status.SLEEPING, _:
            gone = {"started_at": None, "memory_expires_at": None}
            _move(row, Status.STOPPED, "The saved memory is gone; the disk is as it was.", **gone)
        case _, MachineState.ASLEEP:
            handle_machine_end(row, StopReason.SAVED, side.driver)
        case Status.RUNNING, MachineState.PAUSED:
            _go_on(side, row)
            record(row, "recovered", "The machine stood still and goes on.")
        case Status.PAUSED, MachineState.RUNNING:
            side.driver.pause(row.pk)
            record(row, "recovered", "The machine ran although it was paused; it stands still again.")
        case _:
            reason = StopReason.LOST if state is MachineState.ABSENT else StopReason.CRASHED
            handle_machine_end(row, reason, side.driver)
    return True


def _go_on(side: HostRuntime, row: Workspace) -> None:
    """A machine that stood still gets the right time and new randomness, as after every wake."""
    side.driver.resume(row.pk)
    try:
        side.driver.resync_guest(row.pk)
    except BackendError as exc:
        record(row, "clock_not_set", f"The guest's clock could not be set: {exc.message}")


def _move(row: Workspace, to: Status, sentence: str, **fields: Any) -> None:
    if to is Status.RUNNING:
        fields |= {**running_fields(row), "started_at": row.started_at or timezone.now()}
    with transaction.atomic():
        transition(row, to, leaving=frozenset({Status(row.status)}), **fields)
        record(row, "recovered", sentence)


def _unstick(row: Workspace, state: MachineState) -> bool:
    """A state that only an operation may be in, without one: its operation ended and the move was lost."""
    row.refresh_from_db(fields=["status"])
    if row.status not in TRANSITIONAL or Operation.objects.filter(workspace=row, state__in=LIVE).exists():
        return False
    sentence = "The operation was interrupted."
    if row.status in CREATING:
        mark_failed(row, "internal_error", sentence)
    else:
        to = rest_status(row, STATUS_OF[state])
        # Only from what was seen: an operation that ended between the two looks has put the row right.
        stuck = frozenset({Status(row.status)})
        error = {"error_code": "internal_error", "error_message": sentence}
        transition(row, to, leaving=stuck, **rest_fields(row, to), **error)
        record(row, "recovered", f"{sentence} The workspace is {to}.")
    return True


def _end_unwanted(side: HostRuntime, row: Workspace, state: MachineState, inventory: Inventory) -> bool:
    if state not in HOLDS_MEMORY and not (row.status in WANT_NOTHING and row.pk in inventory.ids()):
        return False
    # Ask again, as `_adopt` does: what was there may have gone with an operation that finished since.
    row.refresh_from_db(fields=["status"])
    if row.status not in WANT_OFF or queue.live_operation(row):
        return False
    state = side.driver.state(row.pk)
    if row.status in WANT_NOTHING and row.pk in side.driver.inventory().ids():
        side.driver.delete(row.pk)
        record(row, "leftover_removed", "What was left of the machine was removed.")
        return True
    if state in HOLDS_MEMORY or row.pk in inventory.saved:
        side.driver.destroy(row.pk)
        record(row, "ended", f"The machine was {state} although the workspace is {row.status}; it was ended.")
        return True
    return False


def _leftovers(side: HostRuntime, inventory: Inventory, known: set[str]) -> int:
    """Machines of nobody: removed after the grace time, and never more of them an hour than the cap."""
    now = time.monotonic()
    nobodys = inventory.ids() - known
    side.leftover_since = {key: side.leftover_since.get(key, now) for key in nobodys}
    removed = 0
    for key, since in sorted(side.leftover_since.items()):
        if now - since < settings.ENV.orphan_grace_seconds:
            continue
        if Workspace.objects.filter(pk=key, host_id=side.name).exists():
            continue
        if not side.count_removal(settings.ENV.orphan_removals_per_hour):
            logger.error("leftovers: the cap on removals an hour is reached; %s stay for now", len(nobodys) - removed)
            break
        removed += _remove_leftover(side, key)
    return removed


def _remove_leftover(side: HostRuntime, key: str) -> bool:
    try:
        side.driver.delete(key)
    except BackendError as exc:
        logger.warning("leftover %s: %s", key, exc)
        return False
    logger.warning("removed %s: it belongs to no workspace of this host", key)
    return True
