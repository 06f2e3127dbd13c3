"""Totals, tracking on and off, and the deletion of usage. Metering for billing is independent of all three."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import redis
from django.db import DatabaseError, connection, transaction
from django.db.models import F

from accounts.actors import Actor
from common.confinement import is_confined
from workspaces import call_counter
from workspaces.audit import record_activity
from workspaces.models import Usage, UsagePoint, Workspace
from workspaces.rows import lock_column
from workspaces.usage import latest_samples, selectors
from workspaces.usage.latest_samples import SampledMachine
from workspaces.usage.selectors import SHOWN, TOTALS, CountedTotals, Totals
from workspaces.usage.tiers import DAY, STORED

logger = logging.getLogger(__name__)

# The fields of a sample up to which a row counts.
COUNTED = ("generation", "cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")


def totals_of(workspace: Workspace) -> Totals:
    """Return the totals of one workspace up to the newest sample; never less than the totals returned before."""
    return _show_totals([selectors.counted_totals(workspace)])[workspace.pk]


def totals_by_workspace(actor: Actor) -> dict[str, Totals]:
    """Do what `totals_of` does, for every workspace that the actor may see."""
    return _show_totals(selectors.counted_totals_by_workspace(actor))


def _show_totals(counted: list[CountedTotals]) -> dict[str, Totals]:
    """Store totals above those in the rows before they are returned: the machine, its vmhost and Redis may all be gone
    at the next reading. If they cannot be stored, the stored ones are returned.
    """
    newer = [totals for totals in counted if totals.newest != totals.stored]
    try:
        if newer:
            _store_shown(newer)
    except DatabaseError as exc:
        logger.warning("the shown totals could not be stored: %s", exc)
        return {totals.workspace_id: dict(zip(TOTALS, totals.stored, strict=True)) for totals in counted}
    return {totals.workspace_id: dict(zip(TOTALS, totals.newest, strict=True)) for totals in counted}


@transaction.atomic
def _store_shown(newer: list[CountedTotals]) -> None:
    """Store the totals that are shown. Raise DatabaseError; nothing is stored then."""
    if missing := [totals.workspace_id for totals in newer if totals.row_id is None]:
        # In one order, as concurrent readers wait for each other's new rows.
        existing = Workspace.objects.filter(pk__in=missing).order_by("pk").values_list("pk", flat=True)
        Usage.objects.bulk_create([Usage(workspace_id=key) for key in existing], ignore_conflicts=True)
    # In the order in which the usage writer locks the rows; rows that are new follow by their workspace.
    newer = sorted(newer, key=lambda totals: (totals.row_id is None, totals.row_id or 0, totals.workspace_id))
    with connection.cursor() as cursor:
        cursor.executemany(_SQL_SHOWN, [_shown(totals) for totals in newer])


def _shown(totals: CountedTotals) -> tuple[int | str, ...]:
    twice = (amount for newest in totals.newest for amount in (newest, newest))
    return *twice, totals.workspace_id, totals.reset_count


_SQL_SHOWN = (
    f"UPDATE {Usage._meta.db_table} SET "  # noqa: S608
    + ", ".join(f"{name} = CASE WHEN {name} < %s THEN %s ELSE {name} END" for name in SHOWN)
    + " WHERE workspace_id = %s AND reset_count = %s"
)


def begin_usage(workspace: Workspace, counters: Mapping[str, Any]) -> None:
    """Count the usage of a new workspace from these counters of its machine's process, which ran before."""
    tick = int(time.time() * 1_000_000)
    Usage.objects.create(
        workspace=workspace, tick=tick, **{name: counters[name] for name in COUNTED if name in counters}
    )


@transaction.atomic
def set_tracking(*, workspace: Workspace, actor: str, tracking: bool) -> None:
    """Switch the growth of totals and series on or off, from the next second. Existing data stay. Idempotent.

    Raise NotFound (deleted concurrently).
    """
    lock_column(workspace, "pk")
    row, _ = Usage.objects.get_or_create(workspace=workspace)
    if Usage.objects.filter(pk=row.pk, tracking=not tracking).update(tracking=tracking):
        record_activity(workspace, "tracking_started" if tracking else "tracking_stopped", actor=actor)


@transaction.atomic
def clear_usage(*, workspace: Workspace, actor: str) -> None:
    """Delete totals and series for good; later measurements count from zero. Billing records stay.

    Raise NotFound (deleted concurrently).
    """
    lock_column(workspace, "pk")
    Usage.objects.get_or_create(workspace=workspace)
    row = Usage.objects.select_for_update().get(workspace=workspace)
    Usage.objects.filter(pk=row.pk).update(
        reset_count=F("reset_count") + 1,
        total_cpu_time_ns=0,
        total_disk_read=0,
        total_disk_write=0,
        total_net_rx=0,
        total_net_tx=0,
        **dict.fromkeys(SHOWN, 0),
    )
    _remove_points(row)
    record_activity(workspace, "usage_deleted", "The usage data were deleted.", actor=actor)
    transaction.on_commit(lambda: _delete_live_data(SampledMachine(workspace.host_id, workspace.pk)))


def delete_usage(workspace: Workspace) -> None:
    """Delete the points of a workspace that is being deleted, in the caller's transaction. Billing records stay."""
    row = Usage.objects.filter(workspace=workspace).first()
    if row is not None:
        _remove_points(row)
    machine = SampledMachine(workspace.host_id, workspace.pk)  # the deletion clears it
    # Counted by the control plane; a host with credentials of its own leaves the counter to its expiry.
    transaction.on_commit(lambda: _delete_live_data(machine, with_calls=not is_confined()))


def _remove_points(row: Usage) -> None:
    """Remove points by key, for a day more than the tier covers: some were not rolled up while the worker was down."""
    now = int(time.time())
    for tier in STORED:
        starts = range(tier.floor(now - tier.window - DAY), now + tier.resolution, tier.resolution)
        UsagePoint.objects.filter(tier=tier.number, start__in=list(starts), usage=row).delete()


def _delete_live_data(machine: SampledMachine, *, with_calls: bool = False) -> None:
    try:
        latest_samples.delete_samples(machine)
        if with_calls:
            call_counter.delete_calls(machine.workspace_id)
    except redis.RedisError as exc:  # its points have an older reset count than the row, and expire
        logger.warning("the samples of %s could not be removed: %s", machine.workspace_id, exc)
