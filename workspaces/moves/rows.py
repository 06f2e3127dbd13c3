"""Moves and arrivals: every write of their rows is here, each a guarded update.

The source writes what it offers, and the end of a move that failed or was cancelled; the target writes its arrival; the
control plane makes both rows and commits. What one of them may not write, its role in the database refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now

from common import counters
from vmbackend.copies import Difference
from vmbackend.driver import MachineIdentity
from workspaces import counted
from workspaces.models import Arrival, Move, Operation, Workspace
from workspaces.models.move import ArrivalState, MoveState
from workspaces.models.operation import LIVE, OperationKind


def live_move(operation: Operation) -> Move | None:
    """Return the move that an operation carries out, while it is live."""
    rows = Move.objects.filter(operation_id=operation.pk, state=MoveState.LIVE)
    return rows.select_related("source", "target").first()


def live_move_of(workspace: Workspace) -> Move | None:
    """Return the move of a workspace, while it is live."""
    return Move.objects.filter(workspace_id=workspace.pk, state=MoveState.LIVE).first()


def move_offer(move: Move, snapshot_id: str, size_bytes: int, *, needs: dict[str, Any] | None = None) -> bool:
    """Offer one snapshot more to the target; one that is offered already stays so. Return False if the move has ended.

    The row is written by the operation's owner alone.
    """
    if any(offer["id"] == snapshot_id for offer in move.offers):
        return True
    columns: dict[str, Any] = {"offers": [*move.offers, {"id": snapshot_id, "bytes": size_bytes}]}
    if needs is not None:
        columns["needs"] = needs
    return _change(move, **columns)


def move_stand_still(move: Move, since: datetime) -> bool:
    """Note since when the workspace has not run. Return False if the move has ended."""
    return move.still_since is not None or _change(move, still_since=since)


def move_end(operation: Operation, state: MoveState, code: str = "", message: str = "") -> None:
    """End the move of an operation that is not committed. No effect for one that has ended, and for others.

    It locks both hosts, in their order: call it before what changes the workspace, which locks one of them.
    """
    if operation.kind != OperationKind.MOVE:
        return
    live = Move.objects.filter(operation_id=operation.pk, state=MoveState.LIVE)
    if live.update(state=state, error_code=code, error_message=message, finished_at=Now()):
        count_end(state)


def end_stray_moves() -> int:
    """Cancel the live moves whose operation is not in flight any more: a delete ended it before its host had begun it,
    or a host ended it alone. Return how many. Otherwise a move ends in one commit with its operation.
    """
    carried_out = Operation.objects.filter(pk=OuterRef("operation_id"), state__in=LIVE)
    stray = Move.objects.filter(~Exists(carried_out), state=MoveState.LIVE)
    # One by one: each locks the host that it was to go to.
    return sum(_end_stray(stray.filter(pk=key)) for key in stray.values_list("pk", flat=True))


def _end_stray(move: QuerySet[Move]) -> bool:
    with transaction.atomic():
        columns = {"error_code": "cancelled", "error_message": "The move was cancelled.", "finished_at": Now()}
        if not move.update(state=MoveState.CANCELLED, **columns):
            return False
        count_end(MoveState.CANCELLED)
    return True


def count_end(state: MoveState) -> None:
    """Count for `/metrics` how moves end, on commit."""
    transaction.on_commit(lambda: counters.record_additions(counted.MOVES_ENDED.of(1, state)))


def move_left(move: Move) -> None:
    """Note that the source has removed what it kept for a move that ended."""
    Move.objects.filter(pk=move.pk).exclude(state=MoveState.LIVE).update(left_at=Now())


def _change(move: Move, **columns: Any) -> bool:
    if not Move.objects.filter(pk=move.pk, state=MoveState.LIVE).update(**columns):
        return False
    for name, value in columns.items():
        setattr(move, name, value)
    return True


# The target's


def _receiving(arrival: Arrival) -> Any:
    return Arrival.objects.filter(pk=arrival.pk, state=ArrivalState.RECEIVING)


def arrival_progress(arrival: Arrival, bytes_done: int) -> None:
    """Note how many bytes the target has."""
    _receiving(arrival).update(bytes_done=bytes_done)
    arrival.bytes_done = bytes_done


def arrival_received(arrival: Arrival, snapshot_id: str, bytes_done: int) -> None:
    """Note that a snapshot is complete in the target's store, and how many bytes it has now."""
    arrival.received, arrival.bytes_done = [*arrival.received, snapshot_id], bytes_done
    _receiving(arrival).update(received=arrival.received, bytes_done=bytes_done)


def arrival_retry(arrival: Arrival, code: str, message: str) -> int:
    """Note an attempt that failed. Return how many have."""
    arrival.attempts += 1
    _receiving(arrival).update(attempts=arrival.attempts, error_code=code, error_message=message)
    return arrival.attempts


def arrival_ready(arrival: Arrival, identity: MachineIdentity) -> None:
    """Note that the machine is there; from here on the control plane may commit."""
    _receiving(arrival).update(
        state=ArrivalState.READY,
        error_code="",
        error_message="",
        ssh_host_key=identity.ssh_host_key,
        control_port=identity.control_port,
    )


def arrival_refuse(arrival: Arrival, code: str, message: str, differs: Sequence[Difference] = ()) -> None:
    """Note that the target does not take the workspace, and why."""
    found = [{"what": each.what, "source": each.snapshot, "target": each.host} for each in differs]
    _receiving(arrival).update(state=ArrivalState.REFUSED, error_code=code, error_message=message, differs=found)


def arrival_settled(arrival: Arrival) -> None:
    """Note that the target has removed what is not needed after the move's end."""
    Arrival.objects.filter(pk=arrival.pk).update(settled_at=Now())
