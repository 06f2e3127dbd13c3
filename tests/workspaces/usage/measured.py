"""A host whose sampler is driven by hand, second by second, over the fake driver, with clocks that tests set."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from accounts.models import Account
from common.times import from_epoch
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.driver import Boot, MachineSpec
from vmbackend.fake import usage as fake_usage
from vmbackend.fake.driver import FakeDriver
from workspaces.host.metering.compaction import compact_usage
from workspaces.host.metering.sampler import Sampler
from workspaces.host.metering.writer import Deltas, write_deltas
from workspaces.models import MeterRecord, Operation, Usage, UsagePoint, Workspace
from workspaces.models.operation import OperationKind
from workspaces.states import Status

MIB = 1 << 20
CPU = 1_000_000_000  # a second of CPU time


class Killed(BaseException):
    """The process ends here."""


class DirectWriter:
    """Writes at once, in the test's own thread; `away` stands for a database that does not answer."""

    def __init__(self) -> None:
        self.finished: deque[tuple[int, Deltas]] = deque()
        self.waiting: list[tuple[int, Deltas]] = []
        self.away = self.is_behind = False

    def submit(self, tick: int, parts: Deltas) -> None:
        self.waiting.append((tick, parts))
        while self.waiting and not self.away:
            write_deltas(self.waiting[0][1], self.waiting[0][0])
            tick, parts = self.waiting.pop(0)
            self.finished.append((tick, parts))


class MeasuredHost:
    """`seconds(n)` lets time pass; machines use what `use` says."""

    def __init__(self, account: Account, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.account = account
        self.host = make_host()
        # On a minute, some minutes ago: what is measured from there is in the past, and still in every tier.
        self.wall = float(int(time.time()) // 60 * 60 - 600)
        self.monotonic = 1000.0
        self.driver = FakeDriver(root)
        monkeypatch.setattr(fake_usage, "time", SimpleNamespace(time=lambda: self.wall, sleep=time.sleep))
        self.begin()

    def begin(self) -> None:
        """A vmhost begins; one that was there before knows nothing any more."""
        self.sampler = Sampler(self.host.pk, self.driver, monotonic=lambda: self.monotonic, wall=lambda: self.wall)
        self.writer = DirectWriter()
        self.sampler.writer = self.writer  # type: ignore[assignment]

    def machine(self, **fields: Any) -> Workspace:
        """A running workspace with a machine: two CPUs, 1024 MiB."""
        sizes = {"cpu_millis": 2000, "memory_mb": 1024, "disk_size_mb": 256}
        row = make_workspace(self.account, host=self.host, **(sizes | {"started_at": from_epoch(self.wall)} | fields))
        self.driver.prepare(
            MachineSpec(row.pk, "sha256:x", row.cpus, row.memory_mb, row.disk_size_mb, "10.0.0.2", Boot("m"))
        )
        self.driver.start(row.pk)
        return row

    def use(self, row: Workspace, **amounts: int) -> None:
        self.driver.add_usage(row.pk, **amounts)

    def seconds(self, count: int, row: Workspace | None = None, **each: int) -> None:
        """So many rounds, one a second; `row` uses `each` before every one."""
        for _ in range(count):
            if row is not None:
                self.driver.add_usage(row.pk, **each)
            self.sampler.run_once()
            self.wall += 1
            self.monotonic += 1

    def pass_by(self, count: float) -> None:
        """Time in which nothing is measured."""
        self.wall += count
        self.monotonic += count

    def restart_machine(self, row: Workspace) -> None:
        self.driver.destroy(row.pk)
        time.sleep(0.002)  # the fake driver distinguishes runs by the time they began
        self.driver.start(row.pk)

    def flush(self) -> None:
        self.sampler.flush()
        self.sampler._confirm_written()

    def compact(self) -> int:
        return compact_usage(self.wall)


def begin_operation(row: Workspace, kind: OperationKind, status: Status | None = None) -> Operation:
    """An operation that is queued for the workspace's host; `status`: of the workspace from now on."""
    if status is not None:
        Workspace.objects.filter(pk=row.pk).update(status=status, ready=False)
    return Operation.objects.create(workspace=row, kind=kind, queue=row.host.queue, deadline_at=row.created_at)


def cpu_total(row: Workspace) -> int:
    return Usage.objects.get(workspace=row).total_cpu_time_ns


def metered_cpu(row: Workspace) -> int:
    return sum(record.cpu_time_ns for record in MeterRecord.objects.filter(metered__workspace_id=row.pk))


def points(row: Workspace, tier: int = 2) -> list[UsagePoint]:
    return list(UsagePoint.objects.filter(usage__workspace=row, tier=tier).order_by("start"))


@contextmanager
def dying_after(statements: int) -> Iterator[list[str]]:
    """The process dies at the first statement to the database after so many: the list has it. Or it does not die, where
    there are not as many."""
    seen = 0
    died_at: list[str] = []

    def execute(run: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen > statements:
            died_at.append(sql)
            raise Killed
        return run(sql, params, many, context)

    with suppress(Killed), connection.execute_wrapper(execute):
        yield died_at
