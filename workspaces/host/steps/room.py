"""Checks of what an operation needs of its host, before it ends or changes the machine."""

from __future__ import annotations

from vmbackend.errors import CapacityExceeded
from workspaces.host.context import Context
from workspaces.host.pool.removal import give_back_memory
from workspaces.host.steps.create import ensure_image
from workspaces.models.operation import OperationKind
from workspaces.states import Status

# Facts of an attempt that died after it had ended or changed the machine: the next one goes on.
CHANGED = frozenset({"down", "resized", "applied", "erased", "replaced"})
CHECKING = "checking"  # a fact of the attempt while it checks: nothing was tried yet
HOLDS_MEMORY = frozenset({Status.RUNNING, Status.PAUSED})


def check_capacity(context: Context) -> None:
    """Refuse before the machine is touched. Raise CapacityExceeded, SnapshotNotFound, and ImageError if its image is
    neither here nor to be had.
    """
    if CHANGED & context.facts.keys():
        return
    context.facts[CHECKING] = True
    row, params = context.workspace, context.operation.params
    ensure_image(context)
    taken = {"snapshot_id": params.get("snapshot", ""), "from_memory": bool(params.get("memory"))}
    context.driver.require_room(row.pk, row.applied_disk_size_mb, **taken)
    if context.operation.kind != OperationKind.RESIZE or params["was_running"]:
        _require_memory(context, row.applied_memory_mb - _held_mb(context))
    del context.facts[CHECKING]


def _held_mb(context: Context) -> int:
    """Return the MiB of memory that the machine gives back when it ends."""
    params = context.operation.params
    return int(params["before"]["applied_memory_mb"]) if params["from"] in HOLDS_MEMORY else 0


def _require_memory(context: Context, more_mb: int) -> None:
    """Raise CapacityExceeded unless the host has that much, the memory of its warm machines included."""
    if more_mb <= 0 or more_mb <= context.driver.capacity().memory_free_mb:
        return
    give_back_memory(context.driver, context.workspace.host_id or "")
    if more_mb > context.driver.capacity().memory_free_mb:
        raise CapacityExceeded(f"The host has no {more_mb} MiB of memory to spare.", resource="memory_mb")
