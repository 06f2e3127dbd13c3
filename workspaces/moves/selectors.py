"""Reading moves, for staff."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Q, QuerySet

from vmbackend.models import Host
from workspaces.models import Move, Operation
from workspaces.models.move import MoveState
from workspaces.models.operation import OperationState

LAST = 20
# As the wire contract names them, by the steps of the operation.
_STEPS = {"stand_still": "memory", "": "reserve"}
_OUTCOMES: dict[str, OperationState] = {
    MoveState.COMMITTED: OperationState.SUCCEEDED,
    MoveState.FAILED: OperationState.FAILED,
    MoveState.CANCELLED: OperationState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class ShownMove:
    """A move as staff see it (wire contract, section 11, "Operation of a move")."""

    id: str
    workspace_id: str
    state: str
    step: str
    source: str
    target: str
    bytes_total: int
    bytes_done: int
    standstill_seconds: float | None
    error: dict[str, Any] | None
    created_at: datetime
    finished_at: datetime | None


def shown_moves(host: Host) -> list[ShownMove]:
    """Return the moves from and to a host that are under way, and the last ones. Two queries."""
    of_host = Move.objects.filter(Q(source=host) | Q(target=host)).select_related("arrival")
    recent = of_host.order_by(F("finished_at").desc(nulls_first=True), "-created_at")[:LAST]
    return _shown(recent)


def leaving_count(host: Host) -> int:
    """Return how many workspaces are leaving the host now."""
    return Move.objects.filter(source=host, state=MoveState.LIVE).count()


def shown_move(move: Move) -> ShownMove:
    """Return one move."""
    return _shown(Move.objects.filter(pk=move.pk).select_related("arrival"))[0]


def _shown(moves: QuerySet[Move]) -> list[ShownMove]:
    rows = list(moves)
    keys = {key for row in rows for key in (row.operation_id, row.follower_id)}
    operations = Operation.objects.in_bulk(keys)
    return [_one(row, operations.get(row.operation_id), operations.get(row.follower_id)) for row in rows]


def _one(move: Move, operation: Operation | None, follower: Operation | None) -> ShownMove:
    step = operation.step if operation else ""
    arrival = move.arrival
    return ShownMove(
        id=move.operation_id,
        workspace_id=move.workspace_id,
        state=operation.state if move.is_live and operation else _OUTCOMES.get(move.state, OperationState.FAILED),
        step="clean" if move.state == MoveState.COMMITTED else _STEPS.get(step, step),
        source=move.source_name,
        target=move.target_name,
        bytes_total=_total(move),
        bytes_done=min(arrival.bytes_done, _total(move)),
        standstill_seconds=_standstill(move, follower),
        error=_error(move),
        created_at=move.created_at,
        finished_at=move.finished_at,
    )


def _total(move: Move) -> int:
    """Return the bytes that are offered. What was copied first is a part of the machine's own snapshot."""
    sizes = {offer["id"]: offer["bytes"] for offer in move.offers}
    if move.pk in sizes:
        sizes.pop(move.first_id, None)
    return sum(sizes.values())


def _standstill(move: Move, follower: Operation | None) -> float | None:
    """Return the seconds from the stop of the machine until it ran again."""
    if move.still_since is None or follower is None or follower.finished_at is None:
        return None
    return max(0.0, (follower.finished_at - move.still_since).total_seconds())


def _error(move: Move) -> dict[str, Any] | None:
    if not move.error_code:
        return None
    return {"code": move.error_code, "message": move.error_message, "differs": move.arrival.differs}
