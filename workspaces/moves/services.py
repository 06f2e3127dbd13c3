"""Requests of moves by staff, and their cancellation. Nothing is copied here: both hosts do that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from accounts.services import account_lock
from common.errors import InvalidState, VMUnavailable
from common.work.wakeups import task_send
from vmbackend.models import Host
from workspaces import placement, quota
from workspaces.errors import HostFull, HostNotActive, HostUnfit, MoveCommitted, SameHost, StaticAddress
from workspaces.host_away import require_live_host
from workspaces.models import Arrival, Move, Snapshot, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import OperationKind
from workspaces.models.snapshot import SHOWN, SnapshotStatus
from workspaces.moves.rows import live_move_of
from workspaces.operations import queue
from workspaces.placement import Wish
from workspaces.power import begin_operation, require_no_operation
from workspaces.rows import lock_current
from workspaces.states import MOVABLE, Provisioning, Status
from workspaces.transitions import require_status

RECEIVE_TASK = "workspaces.tasks.receive_moves"
# An advisory lock of the database. Requests and commits of moves lock two hosts each, in no order that suits both.
_MOVES = 5_117_908_224_680_134_551
# What memory needs of a host that its row tells.
_ALIKE = ("qemu", "libvirt", "accelerator")
ANOTHER_ADDRESS = "new"


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A move as staff want it. `to`: the host, or None for the best one. `memory`: whether it goes along, if there is
    some. `new_address`: also of a workspace whose address is to stay.
    """

    reason: str
    to: Host | None = None
    memory: bool = True
    new_address: bool = False


def lock_moves() -> None:
    """Let requests and commits of moves go one after another, to the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_MOVES])


@transaction.atomic
def workspace_move(*, workspace: Workspace, asked: MoveRequest, actor: str) -> Move:
    """Reserve a place on another host and queue the move. A running workspace runs on until its disk is nearly there.

    Raise InvalidState, OperationInProgress, StaticAddress, SameHost, HostNotActive, HostUnfit, HostFull, VMUnavailable
    (its own host does not answer); nothing has changed then.
    """
    account_lock(workspace.account)
    lock_current(workspace)
    lock_moves()
    source = _require_movable(workspace, asked)
    runs = workspace.status == Status.RUNNING
    amount = quota.applied_amount(workspace)
    target = _take_target(workspace, source, asked, amount if runs else amount.without_memory)
    memory = asked.memory and workspace.status != Status.STOPPED
    params: dict[str, Any] = {"memory": memory}
    if runs:
        params["from"] = Status.RUNNING
        operation = queue.enqueue_operation(workspace, OperationKind.MOVE, actor=actor, params=params)
    else:
        operation = begin_operation(workspace, Status.MOVING, OperationKind.MOVE, actor, params)
    move = Move.objects.create(
        workspace_id=workspace.pk,
        account_id=workspace.account_id,
        operation_id=operation.pk,
        source=source,
        target=target,
        source_name=source.name,
        target_name=target.name,
        epoch=workspace.epoch,
        from_status=operation.params["from"],
        memory=memory,
        address=placement.free_address(target),
        counts_as=Status.RUNNING if runs else Status.STOPPED,
        memory_mb=amount.memory_mb,
        disk_mb=amount.disk_size_mb,
        snapshots=_kept_snapshots(workspace),
        actor=actor,
        reason=asked.reason,
    )
    Arrival.objects.create(move=move, target=target)
    transaction.on_commit(lambda: task_send(RECEIVE_TASK, target.queue, []))
    return move


def _kept_snapshots(workspace: Workspace) -> list[str]:
    """Return the ids of the snapshots that go along. One for forks stays: they are made where it is."""
    kept = Snapshot.objects.filter(SHOWN, workspace=workspace, host_id=workspace.host_id, status=SnapshotStatus.READY)
    return list(kept.order_by("created_at").values_list("pk", flat=True))


def _require_movable(workspace: Workspace, asked: MoveRequest) -> Host:
    """Return the host that it leaves."""
    require_no_operation(workspace)
    require_status(workspace, MOVABLE, "be moved")
    if workspace.host is None or workspace.provisioning_state != Provisioning.READY:
        raise InvalidState("It has no machine to move.", details={"status": workspace.status})
    require_live_host(workspace.host)
    if workspace.static_network and not asked.new_address:
        raise StaticAddress
    return workspace.host


def _take_target(workspace: Workspace, source: Host, asked: MoveRequest, wanted: quota.Amount) -> Host:
    """Lock and return the host that it moves to. Raise SameHost, HostNotActive, HostUnfit, HostFull."""
    if asked.to is not None:
        _require_fit(source, asked.to, memory=asked.memory and workspace.status != Status.STOPPED)
    wish = wish_of_move(workspace, source, asked)
    _lock_in_order(source.pk, *([asked.to.pk] if asked.to else placement.find_candidates(wanted, wish)))
    try:
        return placement.place_on_host(wanted, wish)
    except VMUnavailable as error:
        raise HostFull(error.message, details=error.details) from error


def _lock_in_order(*host_ids: str) -> None:
    """Lock the hosts, of which two are written, in the order in which a move that ends locks them."""
    locking = Host.objects.select_for_update(no_key=True).filter(pk__in=host_ids).order_by("pk")
    list(locking.values_list("pk"))


def wish_of_move(workspace: Workspace, source: Host, asked: MoveRequest) -> Wish:
    """Return what the new host must be like."""
    alike = {name: source.capabilities[name] for name in _ALIKE if source.capabilities.get(name)}
    has_memory = asked.memory and workspace.status != Status.STOPPED
    return Wish(
        arch=source.arch,
        labels={} if asked.to else workspace.placement.get("labels") or {},
        capabilities=alike if has_memory else {},
        host=asked.to.pk if asked.to else None,
        leaves=source.pk,
        image=workspace.image,
    )


def _require_fit(source: Host, target: Host, *, memory: bool) -> None:
    if target.pk == source.pk:
        raise SameHost(details={"host": target.name})
    if not target.takes_new:
        raise HostNotActive(details={"host": target.name, "state": target.shown_state})
    if not (source.transfer_key and target.transfer_key):
        raise HostUnfit("These hosts cannot copy from each other: one has joined without a key. Let it join again.")
    differs = [_difference("architecture", source.arch, target.arch)]
    if memory:
        known = [name for name in _ALIKE if source.capabilities.get(name)]
        differs += [_difference(name, source.capabilities[name], target.capabilities.get(name)) for name in known]
    if found := [each for each in differs if each["source"] != each["target"]]:
        raise HostUnfit(details={"differs": found})


def _difference(what: str, source: object, target: object) -> dict[str, object]:
    return {"what": what, "source": source, "target": target}


@transaction.atomic
def move_cancel(*, workspace: Workspace, actor: str) -> Move:
    """End a move before its commit; the workspace stays where it is. Raise InvalidState (it does not move),
    MoveCommitted.
    """
    lock_current(workspace)
    move = live_move_of(workspace)
    if move is None:
        if Move.objects.filter(workspace_id=workspace.pk, state=MoveState.COMMITTED).exists():
            raise MoveCommitted
        raise InvalidState("The workspace is not being moved.", details={"status": workspace.status})
    queue.cancel_move(move.operation_id)
    return move
