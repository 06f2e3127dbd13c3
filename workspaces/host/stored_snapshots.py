"""The store of snapshots of this host, and the rows: removal, and what reconcile corrects."""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from common import counters
from common.confinement import is_confined
from vmbackend.errors import BackendError
from workspaces.charging.snapshots import remove_charged
from workspaces.counted import CORRECTIONS
from workspaces.host.moved import held_entries
from workspaces.host.runtime import HostRuntime
from workspaces.models import Operation, Snapshot
from workspaces.models.operation import LIVE
from workspaces.models.snapshot import LIVING, SnapshotPurpose, SnapshotStatus
from workspaces.operations import queue
from workspaces.snapshot_rows import is_in_use, settle_forks, snapshot_fail, write_differences

logger = logging.getLogger(__name__)

BATCH = 200
LOST = "The files of the snapshot are missing on its host."
ABANDONED = "The operation that made the snapshot is gone."


def release_snapshot(runtime: HostRuntime, snapshot_id: str) -> None:
    """Settle a snapshot after an operation that read it: one for forks goes with the last of them."""
    snapshot = Snapshot.objects.select_related("host").filter(pk=snapshot_id).first()
    if snapshot is None:
        return
    if snapshot.purpose == SnapshotPurpose.FORK and snapshot.deleted_at is None:
        settle_forks(snapshot)
    elif snapshot.deleted_at is not None:
        _remove(runtime, snapshot)


def remove_deleted_snapshots(runtime: HostRuntime) -> int:
    """Remove the files and the rows of deleted snapshots. Return how many; one that is in use waits."""
    deleted = Snapshot.objects.filter(host_id=runtime.host_id, deleted_at__isnull=False, removed_at=None)
    rows = deleted.order_by("deleted_at")
    return sum(_remove(runtime, snapshot) for snapshot in rows[:BATCH])


def _remove(runtime: HostRuntime, snapshot: Snapshot) -> bool:
    """Remove one snapshot; the row goes last, so that a row names what is left after a death."""
    made = Operation.objects.filter(pk=snapshot.operation_id, state__in=LIVE)
    if is_in_use(snapshot.pk) or made.exists():
        return False
    try:
        runtime.driver.remove_snapshot(snapshot.pk)
    except BackendError as exc:
        logger.warning("the snapshot %s could not be removed: %s", snapshot.pk, exc)
        return False
    if is_confined():
        Snapshot.objects.filter(pk=snapshot.pk).update(removed_at=timezone.now())
    else:
        remove_charged(snapshot.pk)
    return True


def reconcile_snapshots(runtime: HostRuntime) -> int:
    """Reconcile rows and store once. Return how many rows and entries were corrected. Raise BackendError."""
    stored = runtime.driver.inventory().snapshots
    for snapshot in Snapshot.objects.filter(LIVING, host_id=runtime.host_id, purpose=SnapshotPurpose.FORK):
        if not settle_forks(snapshot):
            queue.notify_copies(snapshot.pk)  # their notification may be lost
    remove_deleted_snapshots(runtime)
    # The rows are read after the store: a row without files had none before, either, unless it is being made.
    rows = dict(Snapshot.objects.filter(host_id=runtime.host_id).values_list("pk", "status"))
    lost = sum(_fail_lost(runtime, key) for key in _ready(rows) - stored) + _fail_abandoned(runtime)
    _compare(runtime, _ready(rows) & stored)
    failed = {key for key, status in rows.items() if status == SnapshotStatus.FAILED} & stored
    for key in failed:
        runtime.driver.remove_snapshot(key)
    orphans = _remove_orphans(runtime, stored - set(rows) - held_entries(runtime.host_id))
    counters.record_additions(CORRECTIONS.of(lost, "snapshot") + CORRECTIONS.of(orphans, "orphan"))
    return lost + orphans


def _ready(rows: dict[str, str]) -> set[str]:
    return {key for key, status in rows.items() if status == SnapshotStatus.READY}


def _fail_lost(runtime: HostRuntime, snapshot_id: str) -> bool:
    """Fail a complete snapshot without files. The store is asked again: it may have been made since it was read."""
    if runtime.driver.find_snapshot(snapshot_id) is not None:
        return False
    with transaction.atomic():
        snapshot = Snapshot.objects.filter(LIVING, pk=snapshot_id, status=SnapshotStatus.READY).first()
        return snapshot is not None and snapshot_fail(snapshot, "snapshot_lost", LOST)


def _fail_abandoned(runtime: HostRuntime) -> int:
    """Fail the snapshots that no operation makes any more. Return how many.

    An operation ends in one commit with its snapshot, so that one query sees both before that or both after it.
    """
    making = Operation.objects.filter(pk=OuterRef("operation_id"), state__in=LIVE)
    left = Snapshot.objects.filter(~Exists(making), LIVING, host_id=runtime.host_id, status=SnapshotStatus.CREATING)
    with transaction.atomic():
        return sum(snapshot_fail(snapshot, "snapshot_lost", ABANDONED) for snapshot in left)


def _compare(runtime: HostRuntime, snapshot_ids: set[str]) -> None:
    """Write what keeps memory from being loaded. Once for each process: the host changes with it only."""
    wanted = snapshot_ids - runtime.compared_snapshots
    for snapshot in Snapshot.objects.filter(LIVING, pk__in=wanted, memory=True):
        write_differences(snapshot, runtime.driver.compare_snapshot(snapshot.pk))
    runtime.compared_snapshots |= wanted


def _remove_orphans(runtime: HostRuntime, orphans: set[str] | frozenset[str]) -> int:
    """Remove entries of the store that have no row, after the grace time and up to the cap per hour."""
    now = time.monotonic()
    runtime.snapshot_since = {key: runtime.snapshot_since.get(key, now) for key in orphans}
    removed = 0
    for key, since in sorted(runtime.snapshot_since.items()):
        if now - since < settings.ENV.orphan_grace_seconds or Snapshot.objects.filter(pk=key).exists():
            continue
        if not runtime.allow_orphan_removal(settings.ENV.orphan_removals_per_hour):
            logger.error("snapshots: the cap on removals per hour is reached; %s remain", len(orphans) - removed)
            break
        runtime.driver.remove_snapshot(key)
        logger.warning("the snapshot %s was removed from the store: it belongs to no row", key)
        removed += 1
    return removed
