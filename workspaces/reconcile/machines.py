"""Desired against actual, on one host: what each row wants and what the hypervisor has."""

from __future__ import annotations

import logging
import time

from django.conf import settings

from vmbackend.driver import Inventory, MachineState, StopReason
from vmbackend.errors import BackendError
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.operations.create import mark_failed
from workspaces.operations.hostside import HostSide
from workspaces.services.activity import record
from workspaces.services.delete import workspace_delete
from workspaces.services.exits import machine_ended
from workspaces.states import CREATING, TRANSITIONAL, Status, TransitionLost, transition

logger = logging.getLogger(__name__)

ALIVE = frozenset({MachineState.RUNNING, MachineState.PAUSED})
# Rows that want no process; a machine that runs for one is ended.
WANT_OFF = frozenset({Status.STOPPED, Status.FAILED, Status.DESTROYED, Status.LOST})
# Rows that want nothing on the host at all.
WANT_NOTHING = frozenset({Status.FAILED, Status.DESTROYED})


def compare(side: HostSide) -> int:
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


def _mend(side: HostSide, row: Workspace, inventory: Inventory) -> bool:
    state = inventory.domains.get(row.pk, MachineState.ABSENT)
    status = Status(row.status)
    try:
        if status is Status.DELETING:
            workspace_delete(workspace=row, actor="system")
            return True
        if status in TRANSITIONAL:
            return _unstick(row, state)
        if status in (Status.RUNNING, Status.PAUSED) and state not in ALIVE:
            return _ended(side, row)
        if status in WANT_OFF:
            return _end_unwanted(side, row, state, inventory)
    except (TransitionLost, BackendError) as exc:
        logger.warning("reconcile %s: %s", row.pk, exc)
    return False


def _ended(side: HostSide, row: Workspace) -> bool:
    # Ask again: the inventory may be older than a start that finished since.
    state = side.driver.state(row.pk)
    if state in ALIVE:
        return False
    machine_ended(row, StopReason.LOST if state is MachineState.ABSENT else StopReason.CRASHED)
    return True


def _unstick(row: Workspace, state: MachineState) -> bool:
    """A state that only an operation may be in, without one: its operation ended and the move was lost."""
    row.refresh_from_db(fields=["status"])
    if row.status not in TRANSITIONAL or Operation.objects.filter(workspace=row, state__in=LIVE).exists():
        return False
    sentence = "The operation was interrupted."
    if row.status in CREATING:
        mark_failed(row, "internal_error", sentence)
    else:
        to = Status.RUNNING if state is MachineState.RUNNING else Status.STOPPED
        transition(row, to, ready=to is Status.RUNNING, error_code="internal_error", error_message=sentence)
        record(row, "recovered", f"{sentence} The workspace is {to}.")
    return True


def _end_unwanted(side: HostSide, row: Workspace, state: MachineState, inventory: Inventory) -> bool:
    row.refresh_from_db(fields=["status"])
    if row.status not in WANT_OFF:
        return False
    if row.status in WANT_NOTHING and row.pk in inventory.ids():
        side.driver.delete(row.pk)
        record(row, "leftover_removed", "What was left of the machine was removed.")
        return True
    if state in ALIVE:
        side.driver.destroy(row.pk)
        record(row, "ended", f"The machine ran although the workspace is {row.status}; it was ended.")
        return True
    return False


def _leftovers(side: HostSide, inventory: Inventory, known: set[str]) -> int:
    """Machines of nobody: removed after the grace time, and never more of them an hour than the cap."""
    now = time.monotonic()
    nobodys = inventory.ids() - known
    side.leftover_since = {key: side.leftover_since.get(key, now) for key in nobodys}
    removed = 0
    for key, since in sorted(side.leftover_since.items()):
        if now - since < settings.ENV.leftover_grace_seconds:
            continue
        if Workspace.objects.filter(pk=key, host_id=side.name).exists():
            continue
        if not side.may_remove(settings.ENV.leftover_removals_per_hour):
            logger.error("leftovers: the cap on removals an hour is reached; %s stay for now", len(nobodys) - removed)
            break
        side.driver.delete(key)
        logger.warning("removed %s: it belongs to no workspace of this host", key)
        removed += 1
    return removed
