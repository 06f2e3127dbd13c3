"""The commit of a move: one transaction of the control plane, after which the target is right."""

from __future__ import annotations

import logging
from typing import Any

from django.db import OperationalError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from common.work.wakeups import task_send
from vmbackend.host_states import lease_stands
from workspaces import route_cache
from workspaces.audit import record_activity
from workspaces.errors import OperationInProgress
from workspaces.models import Arrival, Move, Operation, Snapshot, Workspace
from workspaces.models.move import ArrivalState, MoveState
from workspaces.models.operation import LIVE, OperationKind, OperationState
from workspaces.models.snapshot import SHOWN, SnapshotStatus
from workspaces.moves.rows import count_end, end_stray_moves
from workspaces.moves.services import lock_moves
from workspaces.operations import queue
from workspaces.power import begin_operation
from workspaces.rows import find_and_lock
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

BATCH = 50
SETTLE_TASK = "workspaces.tasks.settle_moves"


def commit_ready_moves() -> int:
    """End the moves that nothing carries out any more, and commit those whose target has the machine. Return how many
    were committed. Two indexed queries if there are none.
    """
    end_stray_moves()
    return sum(_commit(arrival.move_id) for arrival in _ready()[:BATCH])


def _ready() -> QuerySet[Arrival]:
    """Return arrivals that wait for the commit. A target that has fallen silent is waited for: it may be given up."""
    ready = Arrival.objects.filter(state=ArrivalState.READY, move__state=MoveState.LIVE)
    return ready.filter(lease_stands("target__")).only("move_id")


def _commit(move_id: str) -> bool:
    try:
        with transaction.atomic():
            return _commit_one(move_id)
    except (TransitionLost, OperationInProgress):  # a delete was first: its host ends the move
        return False
    except OperationalError as error:  # the database is away, or chose this one of two that waited for each other
        logger.warning("the move %s is not committed now: %s", move_id, error)
        return False
    except Exception:
        # Both hosts wrote what it is made of, and others must not wait for what one of them spoilt.
        logger.exception("the move %s cannot be committed: its source goes on", move_id)
        queue.cancel_move(Move.objects.values_list("operation_id", flat=True).get(pk=move_id))
        return False


def _commit_one(move_id: str) -> bool:
    workspace_id = Move.objects.values_list("workspace_id", flat=True).get(pk=move_id)
    workspace = find_and_lock(workspace_id, "account", "namespace", "host")
    lock_moves()
    move = Move.objects.select_for_update(of=("self",)).select_related("source", "target", "arrival").get(pk=move_id)
    operation = Operation.objects.filter(pk=move.operation_id, state__in=LIVE, cancel_requested=False).first()
    if workspace is None or operation is None or not _is_due(move, workspace):
        return False
    owned = queue.take_over_operation(operation)
    if owned is None:
        return False
    queue.finish_operation(owned, OperationState.SUCCEEDED)
    follower = _give(workspace, move)
    ended = {"state": MoveState.COMMITTED, "finished_at": Now(), "follower_id": follower.pk if follower else ""}
    Move.objects.filter(pk=move.pk).update(**ended)
    count_end(MoveState.COMMITTED)
    _tell(workspace, move)
    return True


def _is_due(move: Move, workspace: Workspace) -> bool:
    """Return whether the workspace is still as both hosts have left it."""
    return (
        move.is_live
        and move.arrival.state == ArrivalState.READY
        and workspace.status == Status.MOVING
        and (workspace.host_id, workspace.epoch) == (move.source_id, move.epoch)
    )


def _give(workspace: Workspace, move: Move) -> Operation | None:
    """Make the workspace the target's, and let it go on there as it was. Return the operation if it ran. Raise
    TransitionLost, OperationInProgress.
    """
    kept = Snapshot.objects.filter(SHOWN, workspace=workspace, host=move.source, status=SnapshotStatus.READY)
    kept.filter(pk__in=move.arrival.received).update(host=move.target)
    rests = Status.STOPPED if move.from_status == Status.STOPPED or not move.memory else Status.SLEEPING
    given: dict[str, Any] = {
        "host": move.target,
        "epoch": move.epoch + 1,
        "ip": move.address,
        "ssh_host_key": move.arrival.ssh_host_key,
        "control_port": move.arrival.control_port,
        # What was changed meanwhile is applied there.
        "network_stale": True,
        "ssh_stale": True,
    }
    if move.from_status != Status.RUNNING:
        transition(workspace, rests, leaving=frozenset({Status.MOVING}), **given)
        return None
    to, kind = (
        (Status.WAKING, OperationKind.WAKE) if rests is Status.SLEEPING else (Status.STARTING, OperationKind.START)
    )
    return begin_operation(workspace, to, kind, move.actor, {"from": rests}, **given)


def _tell(workspace: Workspace, move: Move) -> None:
    text = f"From {move.source_name} to {move.target_name}: {move.reason}"
    record_activity(workspace, "moved", text, actor=move.actor)
    route_cache.invalidate_routes(workspace)
    for host in filter(None, (move.source, move.target)):
        transaction.on_commit(lambda queue=host.queue: task_send(SETTLE_TASK, queue, []))  # type: ignore[misc]
    logger.info("%s was moved from %s to %s", workspace.pk, move.source_name, move.target_name)
