"""The credits chart (specification, Usage objects): recent charges of a workspace, at most seven points."""

from __future__ import annotations

import json
import logging
import time
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import redis
from django.db.models import Case, IntegerField, Min, QuerySet, Sum, Value, When

from common.redis import redis_key
from common.times import EPOCH, from_epoch, iso
from credits.services import Rates
from workspaces.models import MeterRecord
from workspaces.models.usage import units_of
from workspaces.usage import latest_samples
from workspaces.usage.tiers import DAY, HOUR, MINUTE

logger = logging.getLogger(__name__)

POINTS = 7
CACHE_SECONDS = 60
MICRO, MICROSECOND = 1_000_000, timedelta(microseconds=1)
_SUMS = ("cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes")


class Granularity(NamedTuple):
    """The time between two points of a chart, and its name on the wire."""

    name: str
    seconds: int

    def floor(self, at: float) -> int:
        return int(at // self.seconds) * self.seconds


GRANULARITIES = (Granularity("minute", MINUTE), Granularity("hour", HOUR), Granularity("day", DAY))


def credits_chart(workspace_id: str, now: float | None = None) -> dict[str, Any]:
    """The chart, at most a minute old."""
    key = redis_key(f"usage:{workspace_id}:chart")
    try:
        cached = latest_samples.cached_value(key)
    except redis.RedisError:
        return compute_chart(workspace_id, time.time() if now is None else now)
    if cached is not None:
        return dict(json.loads(cached))
    made = compute_chart(workspace_id, time.time() if now is None else now)
    try:
        latest_samples.cache_value(key, json.dumps(made).encode(), CACHE_SECONDS)
    except redis.RedisError as exc:
        logger.warning("chart of %s: %s", workspace_id, exc)
    return made


def compute_chart(workspace_id: str, now: float) -> dict[str, Any]:
    """The finest granularity of which seven points cover all metering records; of days the last seven.

    The first bucket is the first that is not empty; later empty ones are zero. Three queries.
    """
    first = _first(workspace_id, GRANULARITIES[-1].floor(now) - (POINTS - 1) * DAY, now)
    if first is None:
        return {"granularity": GRANULARITIES[0].name, "data": [], "total": 0}
    chosen = next((g for g in GRANULARITIES if g.floor(first) > g.floor(now) - POINTS * g.seconds), GRANULARITIES[-1])
    starts = list(range(chosen.floor(first), chosen.floor(now) + 1, chosen.seconds))[-POINTS:]
    burned = _burned(workspace_id, starts, chosen.seconds)
    data = [{"date": iso(from_epoch(start)), "creditsBurned": float(burned[start])} for start in starts]
    return {"granularity": chosen.name, "data": data, "total": float(sum(burned.values(), Decimal(0)))}


def _first(workspace_id: str, since: int, now: float) -> float | None:
    """The time of the first record. Records later than `now`, of a clock that is ahead, are ignored until then."""
    tick = _metered(workspace_id, since * MICRO, int(now * MICRO) + 1).aggregate(first=Min("tick"))["first"]
    return None if tick is None else tick / MICRO


def _burned(workspace_id: str, starts: list[int], size: int) -> dict[int, Decimal]:
    """Credits by bucket. A bucket in which a price changed is summed in two parts, to the microsecond."""
    rates = Rates.load()
    until = starts[-1] + size
    changes = [(change - EPOCH) // MICROSECOND for change in rates.changes(from_epoch(starts[0]), from_epoch(until))]
    edges = sorted({*(start * MICRO for start in starts), *changes})
    slots = [When(tick__lt=end, then=Value(number)) for number, end in enumerate([*edges[1:], until * MICRO])]
    metered = _metered(workspace_id, edges[0], until * MICRO).annotate(slot=Case(*slots, output_field=IntegerField()))
    burned = dict.fromkeys(starts, Decimal(0))
    for slot, *sums in metered.order_by().values_list("slot").annotate(*(Sum(name) for name in _SUMS)):
        begin = edges[slot]
        bucket = starts[0] + (begin // MICRO - starts[0]) // size * size
        burned[bucket] += rates.price_of(units_of(*(int(value) for value in sums)), EPOCH + begin * MICROSECOND)
    return burned


def _metered(workspace_id: str, since: int, until: int) -> QuerySet[MeterRecord]:
    """Records between two times in microseconds."""
    return MeterRecord.objects.filter(metered__workspace_id=workspace_id, tick__gte=since, tick__lt=until)
