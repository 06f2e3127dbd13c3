"""Reading usage: totals, series, and sums over a window.

The rows are up to a tick old. Later usage is in Redis, with the tick that it follows, so that the sum of both counts
everything once. Without Redis the rows alone are read. Totals are returned by `usage.services`, which never returns
less than before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import redis
from django.db.models import Q, QuerySet

from accounts.actors import Actor
from accounts.scopes import Scope
from common.exact_sums import exact_sums
from workspaces import selectors as workspaces
from workspaces.models import Activity, Usage, UsagePoint, Workspace
from workspaces.states import HOLDS_PROCESS
from workspaces.usage import latest_samples
from workspaces.usage.amounts import SUMS, Amounts, Point
from workspaces.usage.buckets import rolled_until
from workspaces.usage.latest_samples import LatestSample, SampledMachine
from workspaces.usage.tiers import MINUTES, TIERS, tier_reaching

logger = logging.getLogger(__name__)

TOTALS = ("total_cpu_time_ns", "total_disk_read", "total_disk_write", "total_net_rx", "total_net_tx")
SHOWN = ("shown_cpu_time_ns", "shown_disk_read", "shown_disk_write", "shown_net_rx", "shown_net_tx")
HISTORY_LIMIT = 1000
_COUNTED = ("usage__pk", "usage__tick", "usage__reset_count", *(f"usage__{name}" for name in (*TOTALS, *SHOWN)))

Totals = dict[str, int]


@dataclass(frozen=True, slots=True)
class CountedTotals:
    """One workspace's totals as they were just read, in the order of TOTALS."""

    workspace_id: str
    row_id: int | None  # None: there is no row yet
    reset_count: int
    stored: tuple[int, ...]  # the row's, or the totals returned before if they are more; survives any failure
    newest: tuple[int, ...]  # with unwritten usage; never less than `stored`


def counted_totals(workspace: Workspace) -> CountedTotals:
    """Return the totals of one workspace."""
    row = Workspace.objects.filter(pk=workspace.pk).values_list(*_COUNTED).first()
    latest = latest_of([SampledMachine(workspace.host_id, workspace.pk)])
    return _counted(workspace.pk, row or (None,) * len(_COUNTED), latest.get(workspace.pk))


def counted_totals_by_workspace(actor: Actor) -> list[CountedTotals]:
    """Return the totals of every workspace that the actor may see. One query."""
    rows = list(_visible(actor).values_list("pk", "status", "host_id", *_COUNTED))
    latest = latest_of([SampledMachine(row[2], row[0]) for row in rows if row[1] in HOLDS_PROCESS])
    return [_counted(key, row, latest.get(key)) for key, _, _, *row in rows]


def _counted(workspace_id: str, row: Sequence[int | None], sample: LatestSample | None) -> CountedTotals:
    tick, reset_count, *stored = (value or 0 for value in row[1:])
    totals, shown = stored[: len(TOTALS)], stored[len(TOTALS) :]
    fresh = sample.unwritten if sample and (sample.tick, sample.reset_count) == (tick, reset_count) else Amounts()
    newest = [total + amount for total, amount in zip(totals, _in_order(fresh), strict=True)]
    return CountedTotals(
        workspace_id,
        row[0],
        reset_count,
        stored=tuple(map(max, totals, shown)),
        newest=tuple(map(max, newest, shown)),
    )


def summed_totals(each: Iterable[Totals]) -> Totals:
    found = dict.fromkeys(TOTALS, 0)
    for totals in each:
        for name in TOTALS:
            found[name] += totals[name]
    return found


def latest_of(machines: Sequence[SampledMachine]) -> dict[str, LatestSample]:
    """Return the latest samples of machines by workspace; none if Redis does not answer."""
    try:
        return latest_samples.latest_samples(machines)
    except redis.RedisError as exc:
        logger.warning("samples cannot be read: %s", exc)
        return {}


def _in_order(used: Amounts | Point) -> tuple[int, ...]:
    return used.cpu_time_ns, used.disk_read_bytes, used.disk_write_bytes, used.net_rx_bytes, used.net_tx_bytes


class Series:
    """The points of one workspace, tier by tier. The newest buckets of a tier are computed from the finer tier.

    At most one query for each stored tier and one round trip to Redis, however many tiers are read.
    """

    def __init__(self, workspace: Workspace, now: float | None = None) -> None:
        self.now = time.time() if now is None else now
        self._row = Usage.objects.filter(workspace=workspace).first() or Usage(workspace=workspace)
        self._machine = SampledMachine(workspace.host_id, workspace.pk)
        self._cached: dict[int, dict[int, Point]] = {}

    def points(self, number: int, since: float, until: float) -> list[Point]:
        """Return the buckets of a tier that reach beyond `since` and begin before `until`, oldest first. Gaps have no
        buckets.
        """
        found = self._complete(number, since)
        floor = TIERS[number].floor(since)
        return [found[start] for start in sorted(found) if floor <= start < until]

    def _complete(self, number: int, since: float) -> dict[int, Point]:
        tier, found = TIERS[number], dict(self._recorded(number))
        if number == 0:
            return found
        begin = max([tier.floor(since), *(start + tier.resolution for start in found)])
        for point in self.points(number - 1, begin, self.now + 1):
            start = tier.floor(point.start)
            if start >= begin:
                found.setdefault(start, Point(start)).add(point)
        return found

    def _recorded(self, number: int) -> dict[int, Point]:
        if number not in self._cached:
            if number < MINUTES.number:
                self._cached[0], self._cached[1] = self._recent()
            else:
                self._cached[number] = self._stored(number)
        return self._cached[number]

    def _stored(self, number: int) -> dict[int, Point]:
        if self._row.pk is None:
            return {}
        starts = list(TIERS[number].starts(0, self.now, self.now))
        rows = UsagePoint.objects.filter(usage=self._row, tier=number, start__in=starts)
        return {start: Point(start, *sums) for start, *sums in rows.values_list("start", *SUMS)}

    def _recent(self) -> tuple[dict[int, Point], dict[int, Point]]:
        try:
            seconds, tens = latest_samples.recent_points(self._machine, self._row.reset_count)
        except redis.RedisError as exc:
            logger.warning("samples cannot be read: %s", exc)
            return {}, {}
        return self._merged(0, seconds), self._merged(1, tens)

    def _merged(self, number: int, points: Iterable[Point]) -> dict[int, Point]:
        """Return points by bucket; several may belong to one. Points from a clock that was ahead are ignored."""
        oldest = self.now - TIERS[number].window
        found: dict[int, Point] = {}
        for point in points:
            if oldest <= point.start + TIERS[number].resolution and point.start <= self.now:
                found.setdefault(point.start, Point(point.start)).add(point)
        return found


def window_by_workspace(actor: Actor, since: float, until: float, now: float) -> dict[str, dict[str, int]]:
    """Return totals within a window, and the seconds for which each workspace was observed, of all that the actor may
    see.

    The resolution is that of the tier that covers `since`. A constant number of queries.
    """
    reached = _visible(actor)
    rows = {row[0]: row for row in reached.values_list("pk", "status", "usage__tick", "usage__reset_count", "host_id")}
    sums: dict[str, tuple[int, ...]] = {key: (0,) * (len(TOTALS) + 1) for key in rows}
    points = UsagePoint.objects.filter(_segments(since, until, now), usage__workspace__in=reached.values("pk"))
    fields = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes", "observed_ms")
    for key, *found in points.order_by().values_list("usage__workspace_id").annotate(**exact_sums(fields)):
        sums[key] = tuple(found)
    up = [SampledMachine(row[4], key) for key, row in rows.items() if row[1] in HOLDS_PROCESS]
    latest = latest_of(up) if until > now - MINUTES.resolution else {}
    for key, sample in latest.items():
        if (sample.tick, sample.reset_count) == (rows[key][2] or 0, rows[key][3] or 0):
            fresh = (*_in_order(sample.unwritten_points), sample.unwritten_points.observed_ms)
            sums[key] = tuple(one + other for one, other in zip(sums[key], fresh, strict=True))
    return {
        key: {**dict(zip(TOTALS, found, strict=False)), "uptime_seconds": found[-1] // 1000}
        for key, found in sums.items()
    }


def _segments(since: float, until: float, now: float) -> Q:
    """Return the stored points of a window: the rolled-up ones of the coarse tier, and newer ones of finer tiers."""
    number = max(tier_reaching(now - since).number, MINUTES.number)
    begin, wanted = TIERS[number].floor(since), Q(pk__in=[])
    for tier in reversed(TIERS[MINUTES.number : number + 1]):
        end = until if tier is MINUTES else min(until, rolled_until(tier, now))
        if end > begin:
            wanted |= Q(tier=tier.number, start__gte=begin, start__lt=int(end))
            begin = int(end)
    return wanted


def activity_history(actor: Actor, since: datetime, until: datetime) -> tuple[list[Activity], bool]:
    """Return audit entries of the actor's workspaces, newest first, at most HISTORY_LIMIT, and whether there are more.
    For an account scope, deleted workspaces are included.
    """
    found = Activity.objects.filter(account=actor.account, created_at__gte=since, created_at__lte=until)
    if actor.scope is not Scope.ACCOUNT:
        found = found.filter(workspace_id__in=_visible(actor).values("pk"))
    entries = list(found.order_by("-created_at", "-id")[: HISTORY_LIMIT + 1])
    return entries[:HISTORY_LIMIT], len(entries) > HISTORY_LIMIT


def _visible(actor: Actor) -> QuerySet[Workspace]:
    """Return what `workspaces.selectors.visible_workspaces` returns, without its columns."""
    return Workspace.objects.filter(pk__in=workspaces.visible_workspaces(actor).order_by().values("pk")).order_by()
