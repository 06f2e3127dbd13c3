"""Tracking on and off, and the deletion of usage. Billing goes on through both (`writer.py`)."""

from __future__ import annotations

import logging
import time

import redis
from django.db import transaction
from django.db.models import F

from workspaces import call_counter
from workspaces.audit import record
from workspaces.models import Usage, UsagePoint, Workspace
from workspaces.usage import latest_samples
from workspaces.usage.tiers import DAY, STORED

logger = logging.getLogger(__name__)


@transaction.atomic
def set_tracking(*, workspace: Workspace, actor: str, tracking: bool) -> None:
    """From the next second on totals and series grow, or do not. What there is stays. Twice changes nothing."""
    row, _ = Usage.objects.get_or_create(workspace=workspace)
    if Usage.objects.filter(pk=row.pk, tracking=not tracking).update(tracking=tracking):
        record(workspace, "tracking_started" if tracking else "tracking_stopped", actor=actor)


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
    record(workspace, "usage_deleted", "The usage data were deleted.", actor=actor)
    transaction.on_commit(lambda: _forget_live(workspace.pk))


def delete_usage(workspace: Workspace) -> None:
    """The workspace is being deleted, in the caller's transaction: its points go with it. Billing records stay."""
    row = Usage.objects.filter(workspace=workspace).first()
    if row is not None:
        _remove_points(row)
    workspace_id = workspace.pk  # which the deletion takes away
    transaction.on_commit(lambda: _forget_live(workspace_id, calls_too=True))


def _remove_points(row: Usage) -> None:
    """By key. A day more than a tier reaches back: what nobody rolled up yet, with a worker that was away."""
    now = int(time.time())
    for tier in STORED:
        starts = range(tier.floor(now - tier.window - DAY), now + tier.resolution, tier.resolution)
        UsagePoint.objects.filter(tier=tier.number, start__in=list(starts), usage=row).delete()


def _forget_live(workspace_id: str, *, calls_too: bool = False) -> None:
    try:
        latest_samples.delete_samples(workspace_id)
        if calls_too:
            call_counter.delete_calls(workspace_id)
    except redis.RedisError as exc:  # its points carry an older number than the row, and expire
        logger.warning("samples of %s: %s", workspace_id, exc)
