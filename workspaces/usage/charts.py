"""The credits chart (specification, Usage objects): recent charges of a workspace, at most seven points."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import redis
from django.db.models import Case, IntegerField, Max, Min, QuerySet, Value, When

from common.exact_sums import exact_sums
from common.redis import redis_key
from common.times import EPOCH, from_epoch, iso
from credits.prices import PriceTable
from credits.services import Rates
from workspaces.models import ChargePosition, LateRecord, Metered, MeterRecord, WorkspaceHour
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


class Owners(NamedTuple):
    """Owners of the records of a workspace: the numbers of its `Metered` rows, each with its namespace. Hours before
    `summed` (seconds) are complete.
    """

    namespaces: dict[int, str]
    summed: int


GRANULARITIES = (Granularity("minute", MINUTE), Granularity("hour", HOUR), Granularity("day", DAY))


def credits_chart(workspace_id: str, now: float | None = None) -> dict[str, Any]:
    """Return the chart, at most a minute old."""
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
        logger.warning("the chart of %s could not be cached: %s", workspace_id, exc)
    return made


def compute_chart(workspace_id: str, now: float) -> dict[str, Any]:
    """Compute the chart in the finest granularity of which seven points cover all metering records; in days, the last
    seven.

    The first bucket is the first that is not empty; later empty ones are zero. Hours that are complete are read as
    their sums, which hold what was charged; only later time is read as records. So for seven days no more than about
    the last two hours are read as records, while charging goes on.
    """
    owners = _owners(workspace_id)
    first = _first(owners, GRANULARITIES[-1].floor(now) - (POINTS - 1) * DAY, now)
    if first is None:
        return {"granularity": GRANULARITIES[0].name, "data": [], "total": 0}
    chosen = next((g for g in GRANULARITIES if g.floor(first) > g.floor(now) - POINTS * g.seconds), GRANULARITIES[-1])
    starts = list(range(chosen.floor(first), chosen.floor(now) + 1, chosen.seconds))[-POINTS:]
    burned = _burned(owners, starts, chosen.seconds)
    data = [{"date": iso(from_epoch(start)), "creditsBurned": float(burned[start])} for start in starts]
    return {"granularity": chosen.name, "data": data, "total": float(sum(burned.values(), Decimal(0)))}


def _owners(workspace_id: str) -> Owners:
    summed = ChargePosition.objects.aggregate(until=Max("counted_from"))["until"] or 0
    rows = Metered.objects.filter(workspace_id=workspace_id).values_list("pk", "namespace_id")
    return Owners(dict(rows), summed // MICRO // HOUR * HOUR)


def _first(owners: Owners, since: int, now: float) -> float | None:
    """Return the time of the first record; of summed records the start of their hour. Records later than `now`, from a
    clock that is ahead, are ignored until then.
    """
    hours = WorkspaceHour.objects.filter(metered__in=owners.namespaces, start__gte=since, start__lt=owners.summed)
    start: int | None = hours.filter(start__lte=int(now)).aggregate(first=Min("start"))["first"]
    if start is not None:
        return start
    begin, end = max(since, owners.summed) * MICRO, int(now * MICRO) + 1
    # One query for each: for the smallest of several the database would read all of their records.
    ticks = [
        _records([key], begin, end).order_by("tick").values_list("tick", flat=True)[:1] for key in owners.namespaces
    ]
    found = [tick for one in ticks for tick in one]
    late = _late_records(owners, begin, end).aggregate(first=Min("counted_at"))["first"]
    found += [] if late is None else [late]
    return min(found) / MICRO if found else None


def _burned(owners: Owners, starts: list[int], size: int) -> dict[int, Decimal]:
    """Return the credits by bucket."""
    burned, until = dict.fromkeys(starts, Decimal(0)), starts[-1] + size
    # Buckets of minutes are younger than the summed hours.
    split = min(max(owners.summed, starts[0]), until) if size % HOUR == 0 else starts[0]
    hours = WorkspaceHour.objects.filter(metered__in=owners.namespaces, start__gte=starts[0], start__lt=split)
    for start, credits in hours.values_list("start", "credits"):
        burned[_bucket(start, starts, size)] += credits
    for start, credits in _burned_of_records(owners, starts, split, until):
        burned[_bucket(start, starts, size)] += credits
    return burned


def _bucket(start: int, starts: list[int], size: int) -> int:
    return starts[0] + (start - starts[0]) // size * size


def _burned_of_records(owners: Owners, starts: list[int], split: int, until: int) -> Iterator[tuple[int, Decimal]]:
    """Yield seconds and credits of the records that count from `split` on. If a price changed within a bucket, it is
    summed in two parts, to the microsecond.
    """
    if split >= until:
        return
    rates, prices = Rates.load(), PriceTable.load()
    changes = [(change - EPOCH) // MICROSECOND for change in rates.changes(from_epoch(split), from_epoch(until))]
    edges = sorted({split * MICRO, *(start * MICRO for start in starts if start > split), *changes})
    slots = [When(tick__lt=end, then=Value(number)) for number, end in enumerate([*edges[1:], until * MICRO])]
    records = _records(list(owners.namespaces), edges[0], until * MICRO)
    sums = records.annotate(slot=Case(*slots, output_field=IntegerField())).order_by().values_list("slot")
    for slot, *amounts in sums.annotate(**exact_sums(_SUMS)):
        begin = edges[slot]
        price = rates.price_of(units_of(*amounts), EPOCH + begin * MICROSECOND)
        yield begin // MICRO, price
    late = _late_records(owners, edges[0], until * MICRO)
    for counted_at, *record in late.values_list("counted_at", "record__tick", *(f"record__{name}" for name in _SUMS)):
        yield counted_at // MICRO, prices.price(*record)


def _records(metered: list[int], since: int, until: int) -> QuerySet[MeterRecord]:
    """Return the records between two times in microseconds that count at their tick."""
    return MeterRecord.objects.filter(metered__in=metered, tick__gte=since, tick__lt=until, laterecord=None)


def _late_records(owners: Owners, since: int, until: int) -> QuerySet[LateRecord]:
    """Return the late records that count between two times in microseconds. They were metered before."""
    found = LateRecord.objects.filter(namespace_id__in=set(owners.namespaces.values()))
    return found.filter(counted_at__gte=since, counted_at__lt=until, record__metered__in=owners.namespaces)
