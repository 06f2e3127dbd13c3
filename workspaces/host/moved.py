"""The end of moves on both hosts: what was kept or made for one that has ended is removed. Each part is repeatable."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vmbackend.errors import BackendError
from workspaces.models import Arrival, Move, Snapshot, Workspace
from workspaces.models.move import MoveState
from workspaces.moves.rows import arrival_settled, move_left
from workspaces.snapshot_rows import is_in_use

if TYPE_CHECKING:
    from workspaces.host.runtime import HostRuntime

logger = logging.getLogger(__name__)

BATCH = 100


def settle_moves(runtime: HostRuntime) -> int:
    """Remove what this host has of moves that ended. Return how many it is done with; others are tried again."""
    left = Move.objects.filter(source_id=runtime.host_id, left_at=None).exclude(state=MoveState.LIVE)
    arrivals = Arrival.objects.filter(target_id=runtime.host_id, settled_at=None).select_related("move")
    ended = arrivals.exclude(move__state=MoveState.LIVE)
    return sum(_leave(runtime, move) for move in left[:BATCH]) + sum(_settle(runtime, each) for each in ended[:BATCH])


def moving_machines(host_id: str) -> set[str]:
    """Return the workspaces of which this host may have a machine that is not, or is no longer, their own."""
    leaving = Move.objects.filter(source_id=host_id, left_at=None).values_list("workspace_id", flat=True)
    arriving = Arrival.objects.filter(target_id=host_id, settled_at=None)
    return {*leaving, *arriving.values_list("move__workspace_id", flat=True)}


def held_entries(host_id: str) -> set[str]:
    """Return the snapshots in this host's store that a move needs, whether they have a row or not."""
    leaving = Move.objects.filter(source_id=host_id, left_at=None)
    arriving = Arrival.objects.filter(target_id=host_id, settled_at=None).select_related("move")
    moves = [*leaving, *(arrival.move for arrival in arriving)]
    return {key for move in moves for key in move.entries}


def _leave(runtime: HostRuntime, move: Move) -> bool:
    """Do the source's part: no offer is left; the machine goes if it is the target's now."""
    driver = runtime.driver
    try:
        for snapshot_id in move.entries:
            runtime.transfers.withdraw(snapshot_id)
        if move.state == MoveState.COMMITTED and _has(runtime, move, move.epoch):
            driver.delete(move.workspace_id)
        if any(is_in_use(snapshot_id) for snapshot_id in move.snapshots):  # machines are made of it here
            return False
        for snapshot_id in move.entries:
            if not Snapshot.objects.filter(pk=snapshot_id, host_id=runtime.host_id).exists():
                driver.remove_snapshot(snapshot_id)
    except BackendError as error:
        logger.warning("what was kept of %s could not be removed: %s", move.workspace_id, error.message)
        return False
    move_left(move)
    return True


def _settle(runtime: HostRuntime, arrival: Arrival) -> bool:
    """Do the target's part: nothing partial is left; without the commit the machine goes, too."""
    driver, move = runtime.driver, arrival.move
    try:
        for snapshot_id in move.entries:
            driver.drop_received(snapshot_id)
        if move.state != MoveState.COMMITTED and _has(runtime, move, move.epoch + 1):
            driver.delete(move.workspace_id)
        for snapshot_id in move.entries:
            if not Snapshot.objects.filter(pk=snapshot_id, host_id=runtime.host_id).exists():
                driver.remove_snapshot(snapshot_id)
    except BackendError as error:
        logger.warning("what arrived of %s could not be removed: %s", move.workspace_id, error.message)
        return False
    arrival_settled(arrival)
    return True


def _has(runtime: HostRuntime, move: Move, epoch: int) -> bool:
    """Return whether this host has the machine of that epoch, and the workspace is not its own in it."""
    own = Workspace.objects.filter(pk=move.workspace_id, host_id=runtime.host_id, epoch=epoch)
    return runtime.driver.epoch_of(move.workspace_id) == epoch and not own.exists()
