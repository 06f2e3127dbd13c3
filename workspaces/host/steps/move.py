"""Move to another host: the source's half. Params: memory (whether it goes along).

The source keeps the machine's state in its store and offers it; the target copies it and makes the machine
(`host.arrivals`); the control plane commits (`moves.commits`), which ends the operation. Before the commit nothing is
lost by going back, and after it nothing of the source's is needed.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from vmbackend.copies import StoredSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, InvalidMachineState
from vmbackend.power import GUEST_END_SECONDS
from workspaces import route_cache
from workspaces.audit import record_activity
from workspaces.host import machine_events
from workspaces.host.context import Context
from workspaces.host.outcomes import lock_for_outcome, observed_status, rest_fields
from workspaces.models import Arrival, Move, Snapshot
from workspaces.models.move import ArrivalState, MoveState
from workspaces.models.operation import OperationKind, OperationState
from workspaces.models.snapshot import SHOWN
from workspaces.moves.rows import live_move, move_end, move_offer, move_stand_still
from workspaces.operations import queue
from workspaces.power import begin_operation
from workspaces.states import Status
from workspaces.transitions import transition

POLL_SECONDS = 0.3


class MoveEnded(BackendError):
    """The move was ended while its operation went on."""

    code = "move_ended"


class MoveRefused(BackendError):
    """The target does not take the workspace; `code` and message are the target's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_move(context: Context) -> None:
    """Read the move. Raise MoveEnded."""
    _move(context)


def offer_disk(context: Context) -> None:
    """Let the target copy what exists already: the workspace's snapshots and, while the machine runs, its disk."""
    move = _move(context)
    for snapshot_id in _kept_snapshots(move):
        stored = context.driver.find_snapshot(snapshot_id)
        if stored is not None:
            _offer(context, move, stored)
    if context.driver.state(context.workspace.pk) is MachineState.RUNNING:
        _offer(context, move, context.driver.snapshot(context.workspace.pk, move.first_id, memory=False))
    for offer in move.offered:
        _wait_received(context, move, offer["id"])


def stand_still(context: Context) -> None:
    """Let a running machine sleep, or shut it down if its memory stays behind."""
    row, move = context.workspace, _move(context)
    if row.status == Status.RUNNING:
        transition(row, Status.MOVING, leaving=frozenset({Status.RUNNING}))
    # The transition has invalidated its routes, unless its process died right then.
    route_cache.invalidate_routes_now(row)
    move_stand_still(move, timezone.now())
    state = context.driver.state(row.pk)
    if state is MachineState.RUNNING and move.memory:
        context.driver.sleep(row.pk)
    elif state is MachineState.RUNNING:
        context.driver.shutdown(row.pk, min(settings.ENV.stop_grace_seconds + GUEST_END_SECONDS, context.remaining()))
    elif state is MachineState.PAUSED:
        raise InvalidMachineState("The machine was paused meanwhile.")


def offer_machine(context: Context) -> None:
    """Offer the machine as it is now, and wait until the target has made it."""
    row, move = context.workspace, _move(context)
    if move.memory and context.driver.state(row.pk) is not MachineState.ASLEEP:
        raise InvalidMachineState("The machine ended before its memory was saved.")
    stored = context.driver.snapshot(row.pk, move.pk, memory=move.memory)
    _offer(context, move, stored, needs=context.driver.snapshot_needs(move.pk) if move.memory else {})
    _wait_received(context, move, move.pk)


def await_commit(context: Context) -> None:
    """Wait until the workspace is the target's."""
    move = _move(context)
    while _is_live(move):
        _check_arrival(context, move)
        time.sleep(POLL_SECONDS)


MOVE_STEPS = (
    ("reserve", read_move),
    ("disk", offer_disk),
    ("stand_still", stand_still),
    ("memory", offer_machine),
    ("commit", await_commit),
)


def _move(context: Context) -> Move:
    """Return the move. Raise MoveEnded."""
    found = live_move(context.operation)
    if found is None:
        raise MoveEnded("The move has ended.")
    return found


def _kept_snapshots(move: Move) -> list[str]:
    """Return the ids of the snapshots that go along and were not deleted meanwhile."""
    kept = set(Snapshot.objects.filter(SHOWN, pk__in=move.snapshots, host=move.source).values_list("pk", flat=True))
    return [key for key in move.snapshots if key in kept]


def _offer(context: Context, move: Move, stored: StoredSnapshot, needs: dict[str, object] | None = None) -> None:
    """Let the target copy a snapshot, also if an earlier attempt has done so: this process may be another one."""
    assert move.target is not None  # noqa: S101 a host with a live move is not removed
    folder = context.driver.snapshot_folder(stored.id)
    context.transfers.offer(stored.id, folder, move.target)
    if not move_offer(move, stored.id, stored.size_bytes, needs=needs):
        raise MoveEnded("The move has ended.")


def _wait_received(context: Context, move: Move, snapshot_id: str) -> None:
    """Raise MoveRefused, Cancelled, ClaimLost."""
    while snapshot_id not in _check_arrival(context, move).received:
        time.sleep(POLL_SECONDS)


def _check_arrival(context: Context, move: Move) -> Arrival:
    """Return the target's half as it is now. Raise MoveRefused, Cancelled, ClaimLost."""
    context.check_cancelled()
    arrival = Arrival.objects.select_related("target").get(pk=move.pk)
    if arrival.state == ArrivalState.REFUSED:
        raise MoveRefused(arrival.error_code, arrival.error_message)
    if arrival.target is None or not arrival.target.is_reachable:
        raise MoveRefused("host_not_active", "The target host cannot be reached any more.")
    return arrival


def _is_live(move: Move) -> bool:
    return Move.objects.filter(pk=move.pk, state=MoveState.LIVE).exists()


def move_failed(context: Context, code: str, message: str) -> None:
    """Write the failure: the workspace goes on here as before."""
    _go_back(context, MoveState.FAILED, OperationState.FAILED, code, message)


def move_cancelled(context: Context) -> None:
    """End the move in favour of a delete, which follows, or because staff have ended it."""
    _go_back(context, MoveState.CANCELLED, OperationState.CANCELLED, "cancelled", "The move was cancelled.")


def _go_back(context: Context, state: MoveState, outcome: OperationState, code: str, message: str) -> None:
    row, operation = context.workspace, context.operation
    status = observed_status(context)
    with transaction.atomic():
        lock_for_outcome(row)
        row.refresh_from_db(fields=["status"])
        queue.finish_operation(operation, outcome, code=code, message=message)
        move_end(operation, state, code, message)
        record_activity(row, f"move_{state}", message, actor=operation.actor)
        if row.status == Status.MOVING:
            _rest_or_go_on(context, status)
    machine_events.settle_machine_end(operation, context.driver)


def _rest_or_go_on(context: Context, status: Status) -> None:
    """Give the workspace the status of its machine; start or wake it again if it ran before the move.

    One whose machine was not to be shut down, and is off, has ended by itself: that is settled as any such end.
    """
    row, actor, params = context.workspace, context.operation.actor, context.operation.params
    ran = params.get("from") == Status.RUNNING
    moving = frozenset({Status.MOVING})
    if ran and status is Status.SLEEPING:
        begin_operation(row, Status.WAKING, OperationKind.WAKE, actor, {"from": status})
    elif ran and status is Status.STOPPED and params["memory"]:
        transition(row, Status.RUNNING, leaving=moving)
    elif ran and status is Status.STOPPED:
        begin_operation(row, Status.STARTING, OperationKind.START, actor, {"from": status})
    else:
        transition(row, status, leaving=moving, **rest_fields(row, status))
