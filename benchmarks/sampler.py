"""A host's sampler over many machines: its share of a core, what it writes, and what a day of it takes on disk.

The machines are the fake driver's, with counters that move; database and Redis are private ones. Beside it, in
the same run, the bare driver call once a second.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.sampler [--machines 1000] [--seconds 130] [--no-day]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.databases import use_own_server

use_own_server()
STATE = Path(tempfile.mkdtemp(prefix="mvb-", dir="/tmp"))
SOCKET = STATE / "redis.sock"
os.environ.update(
    DJANGO_SETTINGS_MODULE="config.settings",
    PLATFORM_STATE=str(STATE),
    PLATFORM_VM_BACKEND="fake",
    PLATFORM_SECRET_KEY="a-key-for-one-run-of-a-benchmark-0123456789",
    PLATFORM_REDIS_URL=f"unix://{SOCKET}",
    PLATFORM_LOG_LEVEL="ERROR",
)

import django  # noqa: E402

django.setup()

import redis  # noqa: E402
from django.db import connection  # noqa: E402
from django.db.backends.utils import CursorWrapper  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.services import account_create  # noqa: E402
from vmbackend.fake.driver import FakeDriver  # noqa: E402
from vmbackend.models import Host  # noqa: E402
from vmbackend.samples import GuestDisk, Sample  # noqa: E402
from workspaces.host.metering import sampler as sampling  # noqa: E402
from workspaces.host.metering.compaction import compact_usage  # noqa: E402
from workspaces.host.metering.meter import MeterTarget, UsageDelta  # noqa: E402
from workspaces.host.metering.writer import write_deltas  # noqa: E402
from workspaces.models import Metered, MeterRecord, UsagePoint, Workspace  # noqa: E402
from workspaces.usage.amounts import Amounts, Point  # noqa: E402
from workspaces.usage.tiers import DAY, MINUTE, TIERS  # noqa: E402

BAR = 0.25
BASELINE_SECONDS = 20
LAST_MINUTES = 60
NAME = "bench"


class Moving(FakeDriver):
    """Fake machines that use half a CPU, write and send a little; reading their counters opens no files."""

    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        return GuestDisk(100 << 20, 512 << 20)

    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        now = time.time()
        used = int((now - BEGUN) * 1000)
        return {
            key: Sample(
                now, "run", used * 500_000, used * 100, used * 200, used * 300, used * 400, 200 << 20, 500 << 20
            )
            for key in machine_ids
        }


BEGUN = time.time()


@contextmanager
def private_redis() -> Iterator[redis.Redis]:
    command = ["redis-server", "--port", "0", "--unixsocket", str(SOCKET), "--save", "", "--dir", str(STATE)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while not SOCKET.exists() and time.monotonic() < until:
            time.sleep(0.02)
        yield redis.Redis(unix_socket_path=str(SOCKET))
    finally:
        process.kill()
        process.wait()


def make_machines(count: int) -> tuple[Moving, list[MeterTarget]]:
    """Rows of running workspaces, and their simulated machines."""
    account, _ = account_create(name="bench", plan="scale")
    host = Host.objects.create(name=NAME, subnet="10.200.0.0/16")
    sizes = {"cpu_millis": 1000, "memory_mb": 512, "disk_size_mb": 512}
    rows = [
        Workspace(
            account=account,
            namespace=account.namespaces.get(),
            host=host,
            name=f"workspace {number}",
            slug=f"workspace-{number}",
            image="localhost/workspace:latest",
            status="running",
            ready=True,
            started_at=timezone.now(),
            provisioning_state="ready",
            **sizes,
            **{f"applied_{name}": value for name, value in sizes.items()},
        )
        for number in range(count)
    ]
    Workspace.objects.bulk_create(rows, batch_size=500)
    driver = Moving(STATE / "machines")
    return driver, [MeterTarget(row.pk, row.account_id, row.namespace_id, 1000, 512, True, 0) for row in rows]


class Written:
    """Counts statements and rows that change the database, by table."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.statements = 0

    def watch(self) -> None:
        real_many, real = CursorWrapper.executemany, CursorWrapper.execute

        def many(cursor: Any, sql: str, rows: list[Any]) -> Any:
            self._note(sql, len(rows))
            return real_many(cursor, sql, rows)

        def one(cursor: Any, sql: str, params: Any = None) -> Any:
            self._note(sql, 1)
            return real(cursor, sql, params)

        CursorWrapper.executemany, CursorWrapper.execute = many, one  # type: ignore[method-assign, assignment]

    def _note(self, sql: str, rows: int) -> None:
        words = sql.replace('"', "").split()
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            self.statements += 1
            table = (
                words[1] if words[0] == "UPDATE" else words[min(map(words.index, {"INTO", "FROM"} & set(words))) + 1]
            )
            self.rows[f"{words[0].lower()} {table}"] += rows


def share_of_a_core(seconds: float, run: Callable[[], None]) -> float:
    """CPU time of this process, over wall time."""
    begun, cpu = time.monotonic(), time.process_time()
    run()
    while time.monotonic() - begun < seconds:
        time.sleep(0.2)
    return (time.process_time() - cpu) / (time.monotonic() - begun)


def bare(driver: Moving, ids: list[str], seconds: float) -> float:
    """The driver call alone, once a second."""

    def calls() -> None:
        due = time.monotonic()
        for _ in range(int(seconds)):
            driver.samples(ids)
            due += 1
            time.sleep(max(0.0, due - time.monotonic()))

    return share_of_a_core(seconds, calls)


def bytes_written() -> int:
    """Bytes of the server's log of writes, in which each change is first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_lsn() - '0/0'")
        return int(cursor.fetchone()[0])


def measure(driver: Moving, ids: list[str], seconds: float, client: redis.Redis) -> None:
    baseline = bare(driver, ids, BASELINE_SECONDS)
    written = Written()
    written.watch()
    took: list[float] = []
    sampler = sampling.Sampler(Host.objects.get(name=NAME).pk, driver)
    tick = sampler.run_once

    def timed() -> None:
        begun = time.monotonic()
        tick()
        took.append(time.monotonic() - begun)

    sampler.run_once = timed  # type: ignore[method-assign]
    before = bytes_written()
    share = share_of_a_core(seconds, sampler.start)
    minutes = seconds / MINUTE
    rows, statements = sum(written.rows.values()) / minutes, written.statements / minutes
    moved = (bytes_written() - before) / minutes / 1e6
    took.sort()
    print(f"  sampler           {share:6.1%} of a core for {len(ids)} machines (less than {BAR:.0%})")
    print(
        f"  bare driver call  {baseline:6.1%} of a core; the sampler takes {share / max(baseline, 1e-9):.1f} times that"
    )
    print(f"  {len(took)} rounds: {took[len(took) // 2] * 1000:.0f} ms, at most {took[-1] * 1000:.0f} ms")
    print(f"  database: {rows:.0f} rows a minute in {statements:.0f} statements")
    for table, count in written.rows.most_common():
        print(f"    {table:<38} {count / minutes:7.0f}")
    print(f"  written to the log of the database: {moved:.1f} MB a minute")
    print(f"  Redis holds {client.info('memory')['used_memory'] / 1e6:.1f} MB")
    sampler.stop()


def a_day(entries: list[MeterTarget]) -> None:
    """One day of ticks and compactions, as fast as they go; then the size of the database, and of each part."""
    for model in (MeterRecord, Metered, UsagePoint):
        model.objects.all().delete()
    begun = time.monotonic()
    start = int(time.time()) // DAY * DAY + 2 * DAY
    base, rolled, moved = size(), 0, 0
    for minute in range(DAY // MINUTE):
        if minute == DAY // MINUTE - LAST_MINUTES:
            moved = bytes_written()
        at = start + minute * MINUTE
        write_deltas({entry.workspace_id: _part(entry, minute, at, start) for entry in entries}, at * 1_000_000)
        if minute % 5 == 0:
            rolled += compact_usage(at + MINUTE)
    moved = bytes_written() - moved
    compact_usage(start + DAY)
    counts = Counter(UsagePoint.objects.values_list("tier", flat=True))
    records, whole = MeterRecord.objects.count(), size()
    MeterRecord.objects.all().delete()
    Metered.objects.all().delete()
    tiers = size() - base
    bill = whole - base - tiers
    print(f"  a day of {len(entries)} workspaces, made in {time.monotonic() - begun:.0f} s:")
    print(f"    compaction wrote {rolled / (DAY // MINUTE):.0f} points a minute")
    print(f"    written to the log of the database at its end: {moved / LAST_MINUTES / 1e6:.1f} MB a minute")
    for tier in TIERS[2:]:
        print(f"    tier {tier.number}: {counts[tier.number]:>8} points")
    print(f"    the tiers take {tiers / 1e6:.1f} MB, {tiers / max(sum(counts.values()), 1):.0f} bytes a point")
    each = tiers / max(sum(counts.values()), 1)
    full = len(entries) * sum(tier.window // tier.resolution for tier in TIERS[2:])
    print(f"    full tiers ({full} points, after 90 days) would take {each * full / 1e6:.0f} MB")
    print(f"    {records} metering records take {bill / 1e6:.1f} MB, {bill / max(records, 1):.0f} bytes a record")
    print(f"    one day on disk, tiers and records: {(tiers + bill) / 1e6:.1f} MB")


def _part(entry: MeterTarget, minute: int, at: int, start: int) -> UsageDelta:
    used = Amounts(30_000_000_000, 6_000_000, 12_000_000, 18_000_000, 24_000_000)
    counters = [value * minute for value in (used.cpu_time_ns, 6_000_000, 12_000_000, 18_000_000, 24_000_000)]
    point = Point(
        at, 60_000, used.cpu_time_ns, 60_000_000_000, 200 * 1024 * 60_000, 6_000_000, 12_000_000, 18_000_000, 24_000_000
    )
    sample = Sample(at, "1a2b3c.17b8d0a1b2c3", *counters)
    after = (at - MINUTE) * 1_000_000 if at > start else 0
    return UsageDelta(entry, sample, used, used, 60_000, 512 * 60_000, [point], after)


def size() -> int:
    """Bytes of the database when it is packed."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (FULL)")
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=130)
    parser.add_argument("--no-day", action="store_true", help="leave out the day, which takes minutes")
    options = parser.parse_args()
    try:
        with private_redis() as client:
            driver, entries = make_machines(options.machines)
            measure(driver, [entry.workspace_id for entry in entries], options.seconds, client)
            if not options.no_day:
                a_day(entries)
    finally:
        connection.close()
        shutil.rmtree(STATE, ignore_errors=True)


if __name__ == "__main__":
    main()
