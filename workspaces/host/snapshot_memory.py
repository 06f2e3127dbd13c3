"""Checks of a snapshot's memory against the host, before anything is changed for it."""

from __future__ import annotations

from vmbackend.errors import BackendError, SnapshotIncompatible, SnapshotNotFound
from workspaces.host.context import Context
from workspaces.models import Snapshot
from workspaces.models.snapshot import SnapshotStatus
from workspaces.snapshot_rows import write_differences


class SnapshotNotMade(BackendError):
    """The snapshot that a copy is to be made from has failed. `code` is that of its failure."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot.error_message or "The snapshot was not made.")
        self.code = snapshot.error_code or SnapshotNotFound.code


def require_memory_fits(context: Context) -> None:
    """Check the snapshot that the operation's params name. No effect without one.

    Raise SnapshotNotFound (gone), SnapshotNotMade, SnapshotIncompatible (`differs` is on the row then).
    """
    key = context.operation.params.get("snapshot")
    if not key:
        return
    snapshot = Snapshot.objects.filter(pk=key).first()
    if snapshot is None:
        raise SnapshotNotFound("The snapshot is gone.")
    if snapshot.status != SnapshotStatus.READY:
        raise SnapshotNotMade(snapshot)
    if not context.operation.params.get("memory"):
        return
    differs = context.driver.compare_snapshot(snapshot.pk)
    write_differences(snapshot, differs)
    if differs:
        found = "; ".join(f"{each.what}: {each.snapshot} in the snapshot, {each.host} on the host" for each in differs)
        raise SnapshotIncompatible(f"The memory of the snapshot does not fit its host any more. {found}.")
