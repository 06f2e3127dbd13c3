"""Tracking on and off, and the deletion of usage. Metering for billing is independent of both."""

from __future__ import annotations

import logging
import time

import redis
from django.db import transaction
from django.db.models import F

from workspaces import call_counter
from workspaces.audit import record_activity
from workspaces.models import Usage, UsagePoint, Workspace
from workspaces.usage import latest_samples
from workspaces.usage.tiers import DAY, STORED

logger = logging.getLogger(__name__)


@transaction.atomic
def set_tracking(*, workspace: Workspace, actor: str, tracking: bool) -> None:
    """Switch the growth of totals and series on or off, from the next second. Existing data stay. Idempotent."""
    row, _ = Usage.objects.get_or_create(workspace=workspace)
    if Usage.objects.filter(pk=row.pk, tracking=not tracking).update(tracking=tracking):
        record_activity(workspace, "tracking_started" if tracking else "tracking_stopped", actor=actor)


@transaction.atomic
def clear_usage(*, workspace: Workspace, actor: str) -> None:
    """Delete totals and series for good; what is measured from now on counts from zero. Billing records stay."""
    Usage.objects.get_or_create(workspace=workspace)
    row = Usage.objects.select_for_update().get(workspace=workspace)
    Usage.objects.filter(pk=row.pk).update(
        reset_count=F("reset_count") + 1,
        total_cpu_time_ns=0,
        total_disk_read=0,
        total_disk_write=0,
        total_net_rx=0,
        total_net_tx=0,
    )
    _remove_points(row)
    record_activity(workspace, "usage_deleted", "The usage data were deleted.", actor=actor)
    transaction.on_commit(lambda: _delete_live_data(workspace.pk))


def delete_usage(workspace: Workspace) -> None:
    """Delete the points of a workspace that is being deleted, in the caller's transaction. Billing records stay."""
    row = Usage.objects.filter(workspace=workspace).first()
    if row is not None:
        _remove_points(row)
    workspace_id = workspace.pk  # the deletion clears it
    transaction.on_commit(lambda: _delete_live_data(workspace_id, with_calls=True))


def _remove_points(row: Usage) -> None:
    """By key. A day more than the tier covers: points that were not rolled up while the worker was down."""
    now = int(time.time())
    for tier in STORED:
        starts = range(tier.floor(now - tier.window - DAY), now + tier.resolution, tier.resolution)
        UsagePoint.objects.filter(tier=tier.number, start__in=list(starts), usage=row).delete()


def _delete_live_data(workspace_id: str, *, with_calls: bool = False) -> None:
    try:
        latest_samples.delete_samples(workspace_id)
        if with_calls:
            call_counter.delete_calls(workspace_id)
    except redis.RedisError as exc:  # its points have an older reset count than the row, and expire
        logger.warning("samples of %s: %s", workspace_id, exc)
