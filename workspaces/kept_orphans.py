"""Kept orphans, for staff: their files become a workspace's disk again, or are removed at once.

To put one back, the host first makes the files a machine of an epoch that no row has yet, and then one commit gives the
workspace that host, epoch and address. Whoever dies in between has changed no row: the host sets that machine aside
again, as any former copy. If it does so just before the commit, the orphan has the row's epoch, and its host puts it
back before anything else (`host.ownership.take_back`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from common.errors import InvalidState, NotFound, VMUnavailable
from vmbackend.errors import InvalidMachineState, MachineNotFound
from vmbackend.models import Host, taking_new
from workspaces import route_cache
from workspaces.audit import record_activity
from workspaces.errors import EpochConflict, InvalidHostState
from workspaces.host_away import is_lost_with_host
from workspaces.host_rpc import call_host
from workspaces.models import Workspace
from workspaces.models.workspace import TtlAction
from workspaces.placement import free_address, is_address_free
from workspaces.power import require_no_operation
from workspaces.rows import find_and_lock, update_if
from workspaces.states import NO_MACHINE, Status
from workspaces.transitions import TransitionLost, transition

PUT_BACK_TASK = "workspaces.tasks.put_orphan_back"
REMOVE_TASK = "workspaces.tasks.remove_orphans"
NOT_KEPT = "The host keeps no files of a workspace of this id."
# More assignments than any workspace has: the next one fits the column still.
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment that a workspace gets with its files; `was`, the epoch that it had, and `kept`, that of the files
    as they were shown.
    """

    workspace_id: str
    host: Host
    was: int
    kept: int
    epoch: int
    ip: str


def listed_orphans(host: Host) -> list[dict[str, Any]]:
    """Return the orphans as the host reported them, as far as they are some: one that was taken over says anything."""
    return [orphan for orphan in host.orphans if _is_orphan(orphan)] if isinstance(host.orphans, list) else []


def _is_orphan(orphan: Any) -> bool:
    texts, numbers = ("name", "machine_id"), ("epoch", "kept_since", "size_bytes")
    return (
        isinstance(orphan, dict)
        and all(isinstance(orphan.get(name), str) for name in texts)
        and all(isinstance(orphan.get(name), int | float) and 0 <= orphan[name] < _MOST for name in numbers)
        and isinstance(orphan["epoch"], int)
    )


def prepare_put_back(*, host: Host, workspace_id: str) -> Assignment:
    """Let the host make the workspace's newest orphan a machine again, which belongs to no row yet.

    Raise NotFound (no such orphan, or no such workspace), InvalidHostState, OperationInProgress, InvalidState (a failed
    or destroyed workspace), EpochConflict, VMUnavailable. No row has changed by then.
    """
    workspace = Workspace.objects.filter(pk=workspace_id).first()
    kept = [orphan["epoch"] for orphan in listed_orphans(host) if orphan["machine_id"] == workspace_id]
    if workspace is None or not kept:
        raise NotFound(NOT_KEPT)
    if not host.takes_new:
        raise _not_active(host)
    _require_older(workspace, host, max(kept))
    stays = workspace.host_id == host.pk and workspace.ip
    planned = Assignment(
        workspace_id=workspace_id,
        host=host,
        was=workspace.epoch,
        kept=max(kept),
        epoch=max(workspace.epoch, *kept) + 1,
        ip=str(workspace.ip) if stays else free_address(host),
    )
    _call(host, PUT_BACK_TASK, workspace_id, planned.epoch, planned.ip)
    return planned


def put_back_complete(*, planned: Assignment, actor: str, reason: str) -> Workspace:
    """Give the workspace what `prepare_put_back` has prepared: it is `stopped`, with that disk. In one commit, in the
    caller's transaction. Raise what `prepare_put_back` raises; nothing has changed then.
    """
    host = planned.host
    workspace = find_and_lock(planned.workspace_id, "host")
    if workspace is None:
        raise NotFound(NOT_KEPT)
    if workspace.epoch != planned.was:
        raise EpochConflict
    _require_older(workspace, host, planned.kept)
    if taking_new().select_for_update(no_key=True).filter(pk=host.pk).values_list("pk").first() is None:
        raise _not_active(host)
    if str(workspace.ip) != planned.ip and not is_address_free(host, planned.ip):
        raise VMUnavailable("Its address was taken meanwhile; try again.")
    _assign(workspace, planned)
    record_activity(workspace, "put_back", f"Its files were put back on {host.name}: {reason}", actor=actor)
    route_cache.invalidate_routes(workspace)
    return workspace


def orphans_remove(*, host: Host, workspace_id: str, name: str = "") -> list[str]:
    """Let the host remove the workspace's orphans, or that of this name, at once. Return their names.

    Raise NotFound, VMUnavailable (the host does not answer; it may remove them all the same).
    """
    if not host.is_reachable:
        raise VMUnavailable("The host cannot be reached now; try again later.")
    return _call(host, REMOVE_TASK, workspace_id, name)


def _require_older(workspace: Workspace, host: Host, kept: int) -> None:
    """Raise unless files of the epoch `kept` on this host may take the place of what the workspace has.

    One that is stopped on another host has a disk there. That this host has a newer one is its own word.
    """
    require_no_operation(workspace)
    details = {"status": workspace.status}
    if workspace.status in NO_MACHINE:
        raise InvalidState(f"A workspace that is {workspace.status} has no place for files.", details=details)
    if is_lost_with_host(workspace):
        return
    is_stopped_here = workspace.status == Status.STOPPED and workspace.host_id == host.pk
    if workspace.epoch >= kept or not (workspace.status == Status.LOST or is_stopped_here):
        raise EpochConflict(details=details)


def _assign(workspace: Workspace, planned: Assignment) -> None:
    """Raise EpochConflict, VMUnavailable."""
    given: dict[str, Any] = {
        "host": planned.host,
        "epoch": planned.epoch,
        "ip": planned.ip,
        "error_code": "",
        "error_message": "",
        "user_requested_stop": True,  # its owner says when it starts
        "started_at": None,
        "restart_due_at": None,
        "memory_expires_at": None,
        "idle_due_at": None,
        # On a stopped workspace only a removal can be due.
        **({} if workspace.ttl_action == TtlAction.REMOVE else {"ttl_expires_at": None}),
    }
    try:
        with transaction.atomic():
            if workspace.status == Status.LOST:
                transition(workspace, Status.STOPPED, leaving=frozenset({Status.LOST}), **given)
            elif not update_if(workspace, Q(status=Status.STOPPED), **given):
                raise EpochConflict
    except TransitionLost as error:
        raise EpochConflict from error
    except IntegrityError as error:
        raise VMUnavailable("Its address was taken meanwhile; try again.") from error


def _not_active(host: Host) -> InvalidHostState:
    state = host.shown_state
    return InvalidHostState(f"The host is {state}: it must be active and reachable.", details={"host_state": state})


def _call(host: Host, task: str, workspace_id: str, *arguments: Any) -> list[str]:
    """Return the names of the orphans that the host has changed. Raise NotFound, EpochConflict, VMUnavailable."""
    answer: dict[str, Any] = json.loads(call_host(host.queue, task, workspace_id, *arguments))
    if "refused" not in answer:
        return list(answer["done"])
    if answer["refused"] == MachineNotFound.code:
        raise NotFound(NOT_KEPT)
    if answer["refused"] == InvalidMachineState.code:
        raise EpochConflict(answer["message"])
    raise VMUnavailable(answer["message"])
