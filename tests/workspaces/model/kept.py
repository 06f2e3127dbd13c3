"""The contract of snapshots, small enough to be seen through: their state, and which requests are refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.workspaces.model.expected import PAUSED, RUNNING, SLEEPING, STOPPED, Expected
from workspaces.quota import Amount

Answer = tuple[int, str]  # status and error code
WITH_STATE = (RUNNING, PAUSED, SLEEPING, STOPPED)
NOT_FOUND: Answer = (404, "not_found")
BAD_INPUT: Answer = (400, "validation_error")
NAME_TAKEN: Answer = (409, "conflict")
NOT_READY: Answer = (409, "snapshot_not_ready")
WRONG_STATE: Answer = (409, "invalid_state")
IN_PROGRESS: Answer = (409, "operation_in_progress")
DIFFERS: Answer = (409, "snapshot_incompatible")
UNAVAILABLE: Answer = (503, "VM_UNAVAILABLE")


@dataclass
class KeptSnapshot:
    """A snapshot that is shown. `of`: its workspace, None once that is deleted and it was kept. `amount`: the sizes
    with which the machine ran. `parent`: the snapshot that its workspace came from.
    """

    name: str
    of: str | None
    memory: bool
    amount: Amount
    ready: bool = True
    fits: bool = True
    disk: str = ""
    content: str = ""
    parent: str | None = None
    pool_mb: int = field(default=0, compare=False)

    def use_refused(self, memory: bool | None) -> Answer | None:
        """Return the answer to a restore or a create that names it, with `memory` as asked."""
        if not self.ready:
            return NOT_READY
        if memory and not self.memory:
            return BAD_INPUT
        return DIFFERS if self.has_memory(memory) and not self.fits else None

    def has_memory(self, asked: bool | None) -> bool:
        return self.memory if asked is None else asked


def state_refused(expected: Expected, memory: bool | None) -> Answer | None:
    """Return the answer to a snapshot or a fork of a workspace at rest."""
    if expected.status not in WITH_STATE:
        return WRONG_STATE
    return BAD_INPUT if memory and expected.status == STOPPED else None


def restore_refused(expected: Expected, key: str, kept: KeptSnapshot | None, memory: bool | None) -> Answer | None:
    if kept is None or kept.of != key:
        return NOT_FOUND
    if expected.status not in WITH_STATE:
        return WRONG_STATE
    return kept.use_refused(memory)


def create_refused(kept: KeptSnapshot | None, memory: bool | None, sizes: dict[str, int]) -> Answer | None:
    """Return the answer to a create from a snapshot. `sizes`: `memory_mb` and `disk_size_mb`, as far as given."""
    if kept is None:
        return NOT_FOUND
    if refused := kept.use_refused(memory):
        return refused
    other_memory = sizes.get("memory_mb", kept.amount.memory_mb) != kept.amount.memory_mb
    smaller_disk = sizes.get("disk_size_mb", kept.amount.disk_size_mb) < kept.amount.disk_size_mb
    return BAD_INPUT if smaller_disk or (other_memory and kept.has_memory(memory)) else None


def snapshot_ended(expected: Expected, after: str) -> None:
    """The snapshot was made: the workspace is in the state that was asked for."""
    if after == "paused" and expected.status == RUNNING:
        expected.status = PAUSED
    if after == "stop" and (expected.status != STOPPED or expected.due):
        expected.status, expected.due, expected.came_down = STOPPED, False, False


def restore_ended(expected: Expected, kept: KeptSnapshot, *, memory: bool) -> None:
    """The workspace went back: with memory its sizes are the snapshot's, but for a disk that has grown since."""
    if memory:
        disk = max(expected.wanted.disk_size_mb, kept.amount.disk_size_mb)
        expected.wanted = Amount(kept.amount.cpu_millis, kept.amount.memory_mb, disk)
    expected.applied = expected.wanted
    expected.status, expected.due, expected.restarts = RUNNING, False, 0
    expected.disk, expected.memory = kept.disk, kept.content if memory else ""
