"""Ownership of machines: a machine is this host's only if it was prepared for the epoch that its workspace has.

A machine of another epoch is a former copy: of a workspace that was given to another host, on a host that was restored
from a backup, beside a database that was. It is never started and never deleted at once; the host keeps its files.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import transaction

from vmbackend import services as hosts
from vmbackend.driver import Driver
from vmbackend.errors import BackendError, MachineSetAside
from workspaces.audit import record_activity
from workspaces.host_away import is_lost_with_host
from workspaces.models import Workspace
from workspaces.models.operation import OperationKind
from workspaces.operations import queue
from workspaces.rows import find_and_lock
from workspaces.states import Status

if TYPE_CHECKING:
    from workspaces.host.context import Context
    from workspaces.host.runtime import HostRuntime

logger = logging.getLogger(__name__)

KEPT_FOR = timedelta(days=7)
FOREIGN = "foreign"  # a fact of the operation: the machine that it found was a former copy
# Operations that need nothing of what the workspace had.
WITHOUT_ITS_DISK = frozenset({OperationKind.CREATE, OperationKind.DESTROY, OperationKind.DELETE})
# Held while an orphan is put back, and while one is set aside of which the rest is then removed.
orphan_changes = threading.Lock()


def is_foreign(epoch: int | None, workspace: Workspace) -> bool:
    """Return whether a machine of this epoch is not the workspace's. One that nobody has yet (0) becomes its own."""
    return epoch not in (None, 0, workspace.epoch)


def require_own_machine(context: Context) -> None:
    """Set a machine of another epoch aside, before anything is started or loaded. Raise BackendError.

    Raise MachineSetAside if the operation is about what the workspace had: with no word it would go on with an empty
    disk. The next start makes one. A later attempt raises it too, although the machine is gone by then.

    A machine that was set aside before the row had its epoch is put back.
    """
    if context.operation.kind not in WITHOUT_ITS_DISK:
        take_back(context.driver, context.workspace)
    if is_foreign(context.driver.epoch_of(context.workspace.pk), context.workspace):
        context.record_fact(FOREIGN)
    if not context.facts.get(FOREIGN):
        return
    set_foreign_aside(context.driver, context.workspace)
    if context.operation.kind not in WITHOUT_ITS_DISK:
        raise MachineSetAside(
            "The files on the host are those of an earlier assignment of the workspace; they were set aside, and staff "
            "can get at them for 7 days. Another start begins with an empty disk."
        )


def set_foreign_aside(driver: Driver, workspace: Workspace) -> bool:
    """Set the machine on this host aside if it has another epoch. Return whether it had. Raise BackendError.

    The caller runs the workspace's operation, or holds its row's lock while it has none.
    """
    epoch = driver.epoch_of(workspace.pk)
    if not is_foreign(epoch, workspace):
        return False
    driver.set_aside(workspace.pk)
    logger.warning(
        "%s: its machine of epoch %s is set aside, as the workspace has %s", workspace.pk, epoch, workspace.epoch
    )
    text = "A copy of an earlier assignment was found on a host; it was ended, and its files are kept there for 7 days."
    record_activity(workspace, "copy_set_aside", text)
    return True


def take_back(driver: Driver, workspace: Workspace) -> bool:
    """Put the kept orphan back that has the epoch of the workspace, if the host has no machine of it: it is its machine
    after all. Return whether there was one. Raise BackendError.

    Staff had it put back, say, and it was set aside before the row said so (`workspaces.kept_orphans`). The caller runs
    the workspace's operation, or holds its row's lock while it has none.
    """
    if workspace.ip is None or driver.epoch_of(workspace.pk) is not None:
        return False
    wanted = (workspace.pk, workspace.epoch)
    own = [orphan.name for orphan in driver.kept_orphans() if (orphan.machine_id, orphan.epoch) == wanted]
    if own:
        driver.put_back(own[-1], workspace.epoch, workspace.ip)
        logger.warning("%s: its machine of epoch %s had been set aside, and is put back", *wanted)
    return bool(own)


def take_all_back(runtime: HostRuntime) -> int:
    """Do what `take_back` does, for the workspaces of this host. Return how many were put back."""
    kept = {(orphan.machine_id, orphan.epoch) for orphan in runtime.driver.kept_orphans()}
    rows = Workspace.objects.filter(host_id=runtime.host_id, pk__in=[key for key, _ in kept])
    own = kept.intersection(rows.values_list("pk", "epoch")) if kept else ()
    return sum(_take_back(runtime, key) for key, _ in sorted(own))


@transaction.atomic
def _take_back(runtime: HostRuntime, machine_id: str) -> bool:
    # No operation begins while the row is locked.
    workspace = find_and_lock(machine_id)
    if workspace is None or workspace.host_id != runtime.host_id or queue.live_operation(workspace):
        return False
    if workspace.status == Status.DELETING or _is_written_off(workspace):
        return False
    try:
        return take_back(runtime.driver, workspace)
    except BackendError as exc:
        logger.warning("the machine %s could not be put back: %s", machine_id, exc.message)
        return False


def set_strays_aside(runtime: HostRuntime, machine_ids: set[str]) -> int:
    """Set aside those of these machines of this host whose workspace has another epoch, or is another host's.

    Return how many. One with an operation in flight is left to that.
    """
    return sum(_set_stray_aside(runtime, key) for key in sorted(machine_ids))


def set_gone_aside(runtime: HostRuntime, machine_ids: Collection[str]) -> int:
    """End the machines of a host that was given up and is back, and set their files aside: their workspaces are lost.

    Return how many. One whose row the worker has not written yet is left to the next time.
    """
    done = sum(_set_gone_aside(runtime, key) for key in sorted(machine_ids))
    expire_orphans(runtime)
    return done


@transaction.atomic
def _set_gone_aside(runtime: HostRuntime, machine_id: str) -> bool:
    workspace = find_and_lock(machine_id)
    if workspace is not None and workspace.host_id == runtime.host_id and not _is_written_off(workspace):
        return False
    try:
        if runtime.driver.epoch_of(machine_id) or workspace is not None:
            runtime.driver.set_aside(machine_id)
        else:  # one of the pool, or what no record names
            runtime.driver.delete(machine_id)
    except BackendError as exc:
        logger.warning("the machine %s could not be set aside: %s", machine_id, exc.message)
        return False
    logger.warning("machine %s is set aside: its host was given up", machine_id)
    return True


def _is_written_off(workspace: Workspace) -> bool:
    return is_lost_with_host(workspace) or workspace.status in (Status.FAILED, Status.DESTROYED)


@transaction.atomic
def _set_stray_aside(runtime: HostRuntime, machine_id: str) -> bool:
    # No operation begins while the row is locked.
    workspace = find_and_lock(machine_id)
    if workspace is None or queue.live_operation(workspace):
        return False
    try:
        if workspace.host_id == runtime.host_id:
            return set_foreign_aside(runtime.driver, workspace)
        runtime.driver.set_aside(machine_id)
    except BackendError as exc:
        logger.warning("the machine %s could not be set aside: %s", machine_id, exc.message)
        return False
    logger.warning("machine %s is set aside: its workspace is on another host", machine_id)
    return True


def expire_orphans(runtime: HostRuntime) -> None:
    """Remove the orphans that were kept for KEPT_FOR, and show staff the others. One that cannot be removed is tried
    again the next time.
    """
    before = time.time() - KEPT_FOR.total_seconds()
    orphans = runtime.driver.kept_orphans()
    kept = [orphan for orphan in orphans if orphan.kept_since > before or not _remove_expired(runtime, orphan.name)]
    hosts.record_host_orphans(host_id=runtime.host_id, orphans=[asdict(orphan) for orphan in kept])


def _remove_expired(runtime: HostRuntime, name: str) -> bool:
    try:
        runtime.driver.remove_orphan(name)
    except BackendError as exc:
        logger.warning("the orphan %s could not be removed: %s", name, exc.message)
        return False
    logger.warning("the orphan %s was removed after %s days", name, KEPT_FOR.days)
    return True
