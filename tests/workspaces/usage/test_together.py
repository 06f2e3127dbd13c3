"""Ticks, compaction, deletions and switches at once: no deadlock on either database, and the bill is whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from vmbackend.samples import Sample
from workspaces.host.metering.compaction import compact_usage
from workspaces.host.metering.meter import MeterTarget, UsageDelta
from workspaces.host.metering.writer import write_deltas
from workspaces.models import MeterRecord, Usage, UsagePoint, Workspace
from workspaces.usage import services
from workspaces.usage.amounts import Amounts, Point

TICKS = 60


class Crowd:
    """What goes on at once on a few workspaces: the first is reset_count, the second is switched."""

    def __init__(self, rows: list[Workspace]) -> None:
        self.rows = rows
        self.start = int(time.time()) // 3600 * 3600 - 3600
        self.reset_count = dict.fromkeys((row.pk for row in rows), 0)

    def ticks(self) -> None:
        for number in range(TICKS):
            write_deltas({row.pk: self._part(row, number) for row in self.rows}, number + 1)

    def clears(self) -> None:
        for _ in range(10):
            services.clear_usage(workspace=self.rows[0], actor="me")
            self.reset_count[self.rows[0].pk] += 1

    def switches(self) -> None:
        for number in range(20):
            services.set_tracking(workspace=self.rows[1], actor="me", tracking=bool(number % 2))

    def compactions(self) -> None:
        for number in range(20):
            compact_usage(self.start + 800 + number * 200)

    def _part(self, row: Workspace, number: int) -> UsageDelta:
        entry = MeterTarget(row.pk, row.account_id, row.namespace_id, 1000, 128, True, self.reset_count[row.pk])
        point = Point(self.start + 60 * number, observed_ms=60_000, cpu_time_ns=1)
        used = Amounts(cpu_time_ns=1)
        return UsageDelta(entry, Sample(1, "r", number), used, used, 60_000, 1, [point], number)


def alone(work: Callable[[], None]) -> None:
    try:
        work()
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_ticks_compaction_and_deletions_at_once(api: Caller) -> None:
    rows = [make_workspace(api.account) for _ in range(4)]
    crowd = Crowd(rows)
    with ThreadPoolExecutor(4) as pool:
        works = (crowd.ticks, crowd.clears, crowd.switches, crowd.compactions)
        for future in [pool.submit(alone, work) for work in works]:
            future.result(timeout=120)
    compact_usage(crowd.start + 2 * 3600)
    for row in rows:
        assert MeterRecord.objects.filter(metered__workspace_id=row.pk).count() == TICKS
    for row in rows[1:]:
        assert Usage.objects.get(workspace=row).total_cpu_time_ns == TICKS
        assert UsagePoint.objects.get(usage__workspace=row, tier=4, start=crowd.start).cpu_time_ns == TICKS
    deleted = Usage.objects.get(workspace=rows[0])
    assert deleted.reset_count == 10
    stored = UsagePoint.objects.filter(usage=deleted, tier=4)
    assert sum(point.cpu_time_ns for point in stored) <= deleted.total_cpu_time_ns <= TICKS
