"""Changes of the workloads of a workspace: first the row, then the running guest.

Each raises VmMissing (destroyed) and NotFound (deleted); nothing has changed then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import transaction

from common.errors import DomainError, NotFound, ValidationError
from vmbackend.backend import guest_pool
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.records import workload_records
from vmbackend.guest.workloads import start_workload, stop_workload
from workspaces.audit import record_activity
from workspaces.errors import VmMissing, WorkloadDisabled, WorkloadExists, WorkloadLimit, WorkloadNotFound
from workspaces.guest_changes import GUEST_REACHABLE, apply_until_current, current_copy
from workspaces.guests import (
    WORKLOAD_SECONDS,
    address_of,
    configure_workload,
    guest_errors,
    guest_workload_names,
)
from workspaces.host_away import LATER, is_away
from workspaces.models import Workspace
from workspaces.rows import lock_current, update_row, write_columns
from workspaces.states import Status
from workspaces.workloads import MAX_WORKLOADS, workload

logger = logging.getLogger(__name__)

COLUMNS = ("status", "workloads", "stale_workloads", "ip", "ssh_host_key", "control_port", "updated_at")
# The most names that are kept of workloads that the guest may have in another form than the row. With more names, all
# workloads are looked at.
MAX_STALE = 64
ALL = "*"  # no name of a workload
# Bytes of all workloads together, as records: the machine's configuration has 256 KiB in all.
MAX_RECORDS = 192 * 1024


@transaction.atomic
def workload_add(*, workspace: Workspace, actor: str, item: dict[str, Any]) -> Workspace:
    """Save another workload; `apply_in_guest` makes it effective. Raise WorkloadExists, WorkloadLimit."""
    _lock(workspace)
    if saved_item(workspace, item["name"]):
        raise WorkloadExists
    if len(workspace.workloads) >= MAX_WORKLOADS:
        raise WorkloadLimit(details={"current": len(workspace.workloads), "max": MAX_WORKLOADS})
    return _write(workspace, "workload_added", item["name"], actor, [*workspace.workloads, item])


@transaction.atomic
def workload_change(*, workspace: Workspace, actor: str, name: str, changes: dict[str, Any]) -> Workspace:
    """Save changed fields; None removes one. Raise WorkloadNotFound, ValidationError, serializers.ValidationError."""
    _lock(workspace)
    item = saved_item(workspace, name)
    if not item:
        raise WorkloadNotFound
    if changes.get("name", name) != name:
        raise ValidationError(details={"name": ["A workload cannot be renamed; add another one."]})
    merged = {key: value for key, value in {**item, **changes}.items() if value is not None}
    # Not imported at the top: only the api changes saved workloads, and workers do not load REST framework.
    from workspaces.workload_changes.serializers import checked_workload

    changed = checked_workload(merged)
    items = [changed if each["name"] == name else each for each in workspace.workloads]
    return _write(workspace, "workload_changed", name, actor, items)


@transaction.atomic
def workload_remove(*, workspace: Workspace, actor: str, name: str) -> Workspace:
    """Remove a workload from the saved ones. One that only the guest has is removed there."""
    _lock(workspace)
    items = [each for each in workspace.workloads if each["name"] != name]
    return _write(workspace, "workload_removed", name, actor, items)


@transaction.atomic
def workloads_remove(*, workspace: Workspace, actor: str) -> int:
    """Remove all saved workloads and return how many. `end_removed` ends them in a running guest."""
    _lock(workspace)
    names = {item["name"] for item in workspace.workloads}
    if names:
        stale = stale_with(workspace.stale_workloads, names)
        detail = f"All workloads were removed: {', '.join(sorted(names))}."
        write_columns(workspace, "workload_removed", detail, actor, workloads=[], stale_workloads=stale)
    return len(names)


def end_removed(workspace: Workspace) -> str | None:
    """End the removed workloads in a running guest, outside any transaction. Return None, or why some end later."""
    if workspace.status != Status.RUNNING:
        return f"The workspace is {workspace.status}; it applies when it runs."
    if is_away(workspace):
        return LATER
    return renew_workloads(workspace, time.monotonic() + WORKLOAD_SECONDS) or None


def saved_item(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return the saved workload with this name; empty if there is none."""
    return next((each for each in workspace.workloads if each["name"] == name), {})


def apply_in_guest(workspace: Workspace, name: str) -> str | None:
    """Change a running guest as the row says, outside any transaction. Return None, or why it applies later.

    A change that could not be applied is applied by the next resume, wake or start, or by the host within some minutes
    (`host.guest_renewals`).
    """
    if workspace.status != Status.RUNNING:
        return f"The workspace is {workspace.status}; it applies when it runs."
    if is_away(workspace):
        _mark_stale(workspace, name)
        return LATER
    try:
        if _apply(workspace, name, clears=not workspace.workload_was_stale):
            return None
    except NotFound:  # it was deleted while the guest was asked
        raise
    except DomainError as exc:
        logger.warning("the workload %s of %s is not changed in the guest yet: %s", name, workspace.pk, exc.message)
        return f"{exc.message} It is tried again, at the latest at the next start."
    return "The workload was changed at the same time; it is applied within minutes, or at the next start."


def renew_workloads(row: Workspace, until: float) -> str:
    """Apply changes that a running guest missed, until the time `until` (`time.monotonic`). Return an empty text, or
    why some wait.

    For a guest that has just started, resumed or woken, and for one that runs and did not answer before. The first
    change that fails ends it: a guest that does not answer costs one call.
    """
    columns = (
        Workspace.objects.filter(pk=row.pk, status__in=GUEST_REACHABLE)
        .exclude(stale_workloads=[])
        .values("workloads", "stale_workloads", "status", "updated_at")
        .first()
    )
    if columns is None:
        return ""
    seen, name = current_copy(row, **columns), ""
    try:
        for name in _stale_names(seen):
            if time.monotonic() >= until:
                return "Changes of workloads wait: there was no time for all of them."
            if not _apply(seen, name, reachable=GUEST_REACHABLE, until=until):
                return f"The change of the workload {name} waits: it is being changed."
        _mark_all_applied(seen, columns["workloads"])
    except NotFound:
        return ""  # it was deleted while the guest was asked
    except DomainError as exc:
        return f"The change of the workload {name} waits: {exc.message}" if name else exc.message
    return ""


def _stale_names(row: Workspace) -> list[str]:
    """Return the names of the workloads to apply. Raise GuestUnreachable."""
    if ALL not in row.stale_workloads:
        return list(row.stale_workloads)
    return sorted({item["name"] for item in row.workloads} | set(guest_workload_names(row)))


def mark_workloads_applied(row: Workspace, items: list[dict[str, Any]]) -> None:
    """Mark the workloads of a machine that was defined with them and has not started: none is stale, unless they have
    changed since.
    """
    with suppress(NotFound):
        _mark_all_applied(row, items, also_named=True)


@transaction.atomic
def _mark_all_applied(row: Workspace, items: list[dict[str, Any]], *, also_named: bool = False) -> None:
    """Clear the marks if the workloads are still `items`: the mark for all, and with `also_named` the marks by name.
    Raise NotFound.
    """
    now = Workspace(pk=row.pk)
    lock_current(now, ("workloads", "stale_workloads"))
    if now.stale_workloads and now.workloads == items and (also_named or ALL in now.stale_workloads):
        update_row(row, stale_workloads=[])


def workload_start(*, workspace: Workspace, actor: str, name: str) -> None:
    """Start a workload that ended or was stopped, as it is saved. Raise VmNotRunning, WorkloadNotFound,
    WorkloadDisabled.
    """
    address = address_of(workspace)
    item = saved_item(workspace, name)
    if item and not item.get("enabled", True):
        raise WorkloadDisabled
    if item:
        _apply(workspace, name, clears=False)  # nothing has changed: a mark is another request's
    with guest_errors(), _known_workload():
        guest_pool().call(address, lambda session: start_workload(session, name), WORKLOAD_SECONDS)
    record_activity(workspace, "workload_started", f"The workload {name} was started.", actor=actor)


def workload_stop(*, workspace: Workspace, actor: str, name: str) -> None:
    """Stop a workload until it is started, or until the workspace's next start. Raise VmNotRunning,
    WorkloadNotFound.
    """
    address = address_of(workspace)
    with guest_errors(), _known_workload():
        guest_pool().call(address, lambda session: stop_workload(session, name), WORKLOAD_SECONDS)
    record_activity(workspace, "workload_stopped", f"The workload {name} was stopped.", actor=actor)


@contextmanager
def _known_workload() -> Iterator[None]:
    """Raise WorkloadNotFound if the guest refuses a name that it does not have."""
    try:
        yield
    except GuestCommandInvalid as error:
        if "no such workload" in error.message:
            raise WorkloadNotFound from error
        raise


def _configure(workspace: Workspace, name: str, item: dict[str, Any]) -> None:
    """Configure a workload in the guest. Raise GuestUnreachable, CommandInvalid."""
    configure_workload(workspace, name, workload(item) if item and item.get("enabled", True) else None)


def _apply(workspace: Workspace, name: str, *, clears: bool = True, **limits: Any) -> bool:
    """Do what `apply_until_current` does. Raise GuestUnreachable, CommandInvalid, NotFound."""
    return apply_until_current(
        workspace, lambda: _apply_once(workspace, name, clears), lambda: _mark_stale(workspace, name), **limits
    )


@transaction.atomic
def _mark_stale(workspace: Workspace, name: str) -> None:
    with suppress(NotFound):
        lock_current(workspace, ("stale_workloads",))
        update_row(workspace, stale_workloads=stale_with(workspace.stale_workloads, [name]))


def stale_with(names: list[str], more: Iterable[str]) -> list[str]:
    """Return at most MAX_STALE names, or the mark for all: an owner can add and remove as many as there are names."""
    found = sorted({*names, *more})
    return [ALL] if ALL in found or len(found) > MAX_STALE else found


def _apply_once(workspace: Workspace, name: str, clears: bool) -> bool:
    """Change the guest once. Return False if the row has changed since it was read; the instance has its present
    columns then. Without `clears` a mark stays.

    Raise GuestUnreachable, CommandInvalid, NotFound.
    """
    item = saved_item(workspace, name)
    _configure(workspace, name, item)
    return _mark_applied(workspace, name, item, clears)


@transaction.atomic
def _mark_applied(workspace: Workspace, name: str, item: dict[str, Any], clears: bool) -> bool:
    """Remove the mark of a workload. Return False if it is another one in the row by now."""
    seen = workspace.updated_at
    lock_current(workspace, COLUMNS)
    if saved_item(workspace, name) != item:
        return False
    # After two changes the row may be the same again, while the guest has the state in between. Then, too, the mark is
    # left for the host.
    if clears and workspace.updated_at == seen:
        update_row(workspace, stale_workloads=[each for each in workspace.stale_workloads if each != name])
    return True


def _lock(workspace: Workspace) -> None:
    """Exclude concurrent changes until this transaction ends. Raise NotFound, VmMissing."""
    lock_current(workspace, COLUMNS)
    if workspace.status == Status.DESTROYED:
        raise VmMissing


def _write(workspace: Workspace, event: str, name: str, actor: str, items: list[dict[str, Any]]) -> Workspace:
    """Write the saved workloads. Raise ValidationError if they are too large for a machine."""
    if sum(len(workload_records(workload(each))) for each in items) > MAX_RECORDS:
        raise ValidationError(details={"workloads": [f"All together they have more than {MAX_RECORDS} bytes."]})
    workspace.workload_was_stale = bool({name, ALL} & set(workspace.stale_workloads))
    stale = stale_with(workspace.stale_workloads, [name])
    word = event.rpartition("_")[2]
    detail = f"The workload {name} was {word}."
    return write_columns(workspace, event, detail, actor, workloads=items, stale_workloads=stale)
