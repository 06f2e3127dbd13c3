"""Compaction: tiers are rolled up (3 from 2, 4 from 3, 5 from 4) and old points are removed. Scheduled by Celery beat.

A bucket is computed from all finer ones within it and replaces the stored one, so a compaction that dies is repeated
without harm. The newest bucket of each tier is computed again at every run; points that arrive later are added to the
coarser buckets by the usage writer. Finer points are removed only once a coarser bucket contains them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

from django.db import connection, transaction
from django.db.models import Min, Sum
from django.db.models.functions import Least

from common.bulk_rows import LARGEST
from workspaces.models import Usage, UsagePoint
from workspaces.usage.amounts import SUMS
from workspaces.usage.buckets import newest_bucket, rolled_until, sql_points
from workspaces.usage.tiers import STORED, Tier

# Seconds to wait after a bucket's end, for the ticks that contain its last minute.
LATE_SECONDS = 180
BATCH = 500  # workspaces in one transaction
BUCKETS = 50  # of a tier in one run; the next run does the rest
REMOVED = 20_000  # points of a tier in one run, in batches
REMOVED_AT_ONCE = 2000


def compact_usage(now: float | None = None) -> int:
    """Roll up the buckets that ended and remove expired points. Return how many points were written."""
    now = time.time() if now is None else now
    written = sum(_roll_up(fine, coarse, now) for fine, coarse in pairwise(STORED))
    for tier, coarse in zip(STORED, [*STORED[1:], None], strict=True):
        _expire(tier, coarse, now)
    return written


def _roll_up(fine: Tier, coarse: Tier, now: float) -> int:
    return sum(_roll_up_bucket(fine, coarse, start) for start in _ended_buckets(fine, coarse, now))


def _ended_buckets(fine: Tier, coarse: Tier, now: float) -> Iterator[int]:
    """Yield the starts of the coarse buckets to compute: from the newest stored one on, those that ended and are not
    empty.
    """
    begin = newest_bucket(coarse, now) or 0
    if begin < now - fine.window:
        begin += coarse.resolution  # some of its finer points may be removed already
    for _ in range(BUCKETS):
        first = UsagePoint.objects.filter(tier=fine.number, start__gte=begin).aggregate(at=Min("start"))["at"]
        if first is None:
            return
        start = coarse.floor(first)
        if start + coarse.resolution + LATE_SECONDS > now:
            return
        yield start
        begin = start + coarse.resolution


def _roll_up_bucket(fine: Tier, coarse: Tier, start: int) -> int:
    starts = list(range(start, start + coarse.resolution, fine.resolution))
    written, last = 0, 0
    while True:
        with transaction.atomic():
            # Locked, so that a deletion of usage comes before or after, never between the reading and the writing.
            locked = Usage.objects.select_for_update().filter(pk__gt=last).order_by("pk")
            ids = list(locked.values_list("pk", flat=True)[:BATCH])
            if not ids:
                return written
            written += _roll_up_rows(ids, fine, coarse, starts)
        last = ids[-1]


def _roll_up_rows(ids: list[int], fine: Tier, coarse: Tier, starts: list[int]) -> int:
    points = UsagePoint.objects.filter(
        tier=fine.number, start__in=starts, usage_id__gte=ids[0], usage_id__lte=ids[-1]
    ).order_by()
    # A machine whose sum no column holds would end the compaction of all.
    most = LARGEST // len(starts)
    sums = points.values_list("usage_id").annotate(**{f"{name}_sum": Sum(Least(name, most)) for name in SUMS})
    rows = [(usage, coarse.number, starts[0], *(int(value) for value in values)) for usage, *values in sums]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(sql_points(adding=False), rows)
    return len(rows)


def _expire(tier: Tier, coarse: Tier | None, now: float) -> None:
    limit = tier.floor(now - tier.window)
    if coarse is not None:  # only whole buckets that it contains
        limit = min(coarse.floor(limit), rolled_until(coarse, now))
    old = UsagePoint.objects.filter(tier=tier.number, start__lt=limit).order_by("start")
    for _ in range(REMOVED // REMOVED_AT_ONCE):
        ids = list(old.values_list("pk", flat=True)[:REMOVED_AT_ONCE])
        if not ids:
            return
        UsagePoint.objects.filter(pk__in=ids).delete()
