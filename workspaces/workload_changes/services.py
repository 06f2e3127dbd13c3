"""Changes of the workloads of a workspace: first the row, then the running guest.

Each raises VmMissing (destroyed) and NotFound (deleted); nothing has changed then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from common.connections import release_connection
from common.errors import DomainError, NotFound, ValidationError
from vmbackend.backend import guest_pool
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.records import workload_records
from vmbackend.guest.workloads import start_workload, stop_workload
from workspaces.audit import record_activity
from workspaces.errors import VmMissing, WorkloadDisabled, WorkloadExists, WorkloadLimit, WorkloadNotFound
from workspaces.guests import WORKLOAD_SECONDS, address_of, configure_workload, guest_errors
from workspaces.models import Workspace
from workspaces.rows import lock_current, update_row, write_columns
from workspaces.states import Status
from workspaces.workload_changes.serializers import MAX_WORKLOADS, checked_workload
from workspaces.workloads import workload

logger = logging.getLogger(__name__)

COLUMNS = ("status", "workloads", "stale_workloads", "ip", "ssh_host_key", "control_port")
# Another request may change the row while the guest is being changed: then it is changed once more.
APPLY_ATTEMPTS = 5
# Of all together, as records: the machine's configuration has 256 KiB in all.
MAX_RECORDS = 192 * 1024
# States in which the guest responds.
GUEST_REACHABLE = frozenset({Status.RUNNING, Status.RESUMING, Status.WAKING})


@transaction.atomic
def workload_add(*, workspace: Workspace, actor: str, item: dict[str, Any]) -> Workspace:
    """Save another workload; `apply_in_guest` makes it effective. Raises WorkloadExists, WorkloadLimit."""
    _lock(workspace)
    if saved_item(workspace, item["name"]):
        raise WorkloadExists
    if len(workspace.workloads) >= MAX_WORKLOADS:
        raise WorkloadLimit(details={"current": len(workspace.workloads), "max": MAX_WORKLOADS})
    return _write(workspace, "workload_added", item["name"], actor, [*workspace.workloads, item])


@transaction.atomic
def workload_change(*, workspace: Workspace, actor: str, name: str, changes: dict[str, Any]) -> Workspace:
    """Save changed fields; None removes one. Raises WorkloadNotFound, ValidationError, serializers.ValidationError."""
    _lock(workspace)
    item = saved_item(workspace, name)
    if not item:
        raise WorkloadNotFound
    if changes.get("name", name) != name:
        raise ValidationError(details={"name": ["A workload cannot be renamed; add another one."]})
    merged = {key: value for key, value in {**item, **changes}.items() if value is not None}
    changed = checked_workload(merged)
    items = [changed if each["name"] == name else each for each in workspace.workloads]
    return _write(workspace, "workload_changed", name, actor, items)


@transaction.atomic
def workload_remove(*, workspace: Workspace, actor: str, name: str) -> Workspace:
    """Remove it from what is saved. One that only the guest has is removed there."""
    _lock(workspace)
    items = [each for each in workspace.workloads if each["name"] != name]
    return _write(workspace, "workload_removed", name, actor, items)


def saved_item(workspace: Workspace, name: str) -> dict[str, Any]:
    """Empty where none is saved under this name."""
    return next((each for each in workspace.workloads if each["name"] == name), {})


def apply_in_guest(workspace: Workspace, name: str) -> str | None:
    """Change a running guest as the row says, outside of any transaction. None, or why it applies later.

    A change that could not be applied is applied by the next resume, wake or start.
    """
    for _ in range(APPLY_ATTEMPTS):
        if workspace.status != Status.RUNNING:
            return f"The workspace is {workspace.status}; it applies when it runs."
        release_connection()
        try:
            if _apply_once(workspace, name):
                return None
        except NotFound:  # it was deleted while the guest was asked
            raise
        except DomainError as exc:
            logger.warning("workload %s of %s: %s", name, workspace.pk, exc.message)
            return f"{exc.message} It applies at the next start."
    return "The workload was changed by concurrent requests; read it again."


def renew_workloads(row: Workspace) -> None:
    """Apply, in a guest that has just started, resumed or woken, changes that it missed."""
    changed = Workspace.objects.filter(pk=row.pk, status__in=GUEST_REACHABLE).exclude(stale_workloads=[])
    if not changed.exists():
        return
    row.refresh_from_db(fields=["workloads", "stale_workloads"])
    for name in list(row.stale_workloads):
        try:
            for _ in range(APPLY_ATTEMPTS):
                if _apply_once(row, name):
                    break
        except NotFound:
            return  # it was deleted while the guest was asked
        except DomainError as exc:
            message = f"The change of the workload {name} waits for the next start: {exc.message}"
            record_activity(row, "workload_not_changed", message)


def workload_start(*, workspace: Workspace, actor: str, name: str) -> None:
    """Start one that ended or was stopped, as it is saved. Raises VmNotRunning, WorkloadNotFound, WorkloadDisabled."""
    address = address_of(workspace)
    item = saved_item(workspace, name)
    if item and not item.get("enabled", True):
        raise WorkloadDisabled
    for _ in range(APPLY_ATTEMPTS if item else 0):
        if _apply_once(workspace, name):
            break
    with guest_errors(), _known_workload():
        guest_pool().call(address, lambda session: start_workload(session, name), WORKLOAD_SECONDS)
    record_activity(workspace, "workload_started", f"The workload {name} was started.", actor=actor)


def workload_stop(*, workspace: Workspace, actor: str, name: str) -> None:
    """End it until it is started, or until the workspace's next start. Raises VmNotRunning, WorkloadNotFound."""
    address = address_of(workspace)
    with guest_errors(), _known_workload():
        guest_pool().call(address, lambda session: stop_workload(session, name), WORKLOAD_SECONDS)
    record_activity(workspace, "workload_stopped", f"The workload {name} was stopped.", actor=actor)


@contextmanager
def _known_workload() -> Iterator[None]:
    """Raises WorkloadNotFound for the guest's refusal of a name that it does not have."""
    try:
        yield
    except GuestCommandInvalid as error:
        if "no such workload" in error.message:
            raise WorkloadNotFound from error
        raise


def _configure(workspace: Workspace, name: str, item: dict[str, Any]) -> None:
    """Raises GuestUnreachable, CommandInvalid."""
    configure_workload(workspace, name, workload(item) if item and item.get("enabled", True) else None)


def _apply_once(workspace: Workspace, name: str) -> bool:
    """False where the row has changed since it was read; the instance has its columns as they are now.

    The guest may have got the older workload after the newer one, which another process applied and marked as applied:
    who gets False configures it again. Raises GuestUnreachable, CommandInvalid, NotFound.
    """
    item = saved_item(workspace, name)
    _configure(workspace, name, item)
    return _mark_applied(workspace, name, item)


@transaction.atomic
def _mark_applied(workspace: Workspace, name: str, item: dict[str, Any]) -> bool:
    """False where the row has changed since."""
    lock_current(workspace, COLUMNS)
    if saved_item(workspace, name) != item:
        return False
    update_row(workspace, stale_workloads=[each for each in workspace.stale_workloads if each != name])
    return True


def _lock(workspace: Workspace) -> None:
    """Exclude concurrent changes until this transaction ends. Raises NotFound, VmMissing."""
    lock_current(workspace, COLUMNS)
    if workspace.status == Status.DESTROYED:
        raise VmMissing


def _write(workspace: Workspace, event: str, name: str, actor: str, items: list[dict[str, Any]]) -> Workspace:
    """Raises ValidationError: too large for a machine."""
    if sum(len(workload_records(workload(each))) for each in items) > MAX_RECORDS:
        raise ValidationError(details={"workloads": [f"All together they have more than {MAX_RECORDS} bytes."]})
    stale = sorted({*workspace.stale_workloads, name})
    word = event.rpartition("_")[2]
    detail = f"The workload {name} was {word}."
    return write_columns(workspace, event, detail, actor, workloads=items, stale_workloads=stale)
