"""Billing: closing a cycle of many workspaces, usage units of a namespace with many records, and bytes of a day.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.billing [--workspaces 10000] [--records 10000000]

Ten million records take about 2 GB in /tmp and some minutes to load. Baselines, in the same run: of the cycle the same
number of events and deliveries written by bare statements; of usage units a namespace with 10,000 records.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.charge import make_owners, write_ticks
from benchmarks.common import show
from benchmarks.databases import new_database
from benchmarks.sweep import prepare

CLOSE_SECONDS, CLOSE_MIB = 30, 64
UNITS_BAR = 1.3
FEW, DAYS, MINUTE = 10_000, 30, 60
DAY_WORKSPACES, DAY_TICKS = 1000, 60
TABLES = (
    "workspaces_meterrecord", "workspaces_metered", "credits_entry", "workspaces_workspacehour",
    "workspaces_namespacetick", "workspaces_namespaceminute", "workspaces_namespacehour",
)  # fmt: skip


def execute(sql: str, *params: object) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def resident_mib(name: str) -> float:
    """VmRSS: now, VmHWM: the most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def close_cycle(workspaces: int, *, subscribed: bool) -> tuple[float, float]:
    """Seconds and MiB of closing a cycle in which so many workspaces were charged."""
    from django.utils import timezone

    from accounts.models import Account
    from webhooks.models import Subscription
    from workspaces.charging.billing import cycles_close
    from workspaces.charging.services import charge_metered
    from workspaces.models import BillingCycle

    Subscription.objects.all().delete()
    if subscribed:
        Subscription.objects.create(
            account=Account.objects.get(), events=["credits.usage"], url="https://h.example/", host="h.example",
            secret="whsec_c2VjcmV0",
        )  # fmt: skip
    write_ticks(1, time.time())
    while charge_metered():
        pass
    BillingCycle.objects.filter(closed_at=None).update(end=int(timezone.now().timestamp()))
    gc.collect()
    forget_peak()
    before, begun, reported = resident_mib("VmRSS"), time.perf_counter(), 0
    while BillingCycle.objects.filter(closed_at=None).exists():
        reported += cycles_close()
    taken = time.perf_counter() - begun
    if reported != workspaces:
        raise SystemExit(f"{reported} of {workspaces} were reported")
    return taken, resident_mib("VmHWM") - before


def bare_inserts(count: int) -> float:
    """Seconds of writing as many events and deliveries in batches by the driver, and taking them back."""
    from django.db import connection, transaction
    from django.utils import timezone

    from accounts.models import Account
    from webhooks.models import Subscription

    account, hook = Account.objects.get().pk, Subscription.objects.get().pk
    data = json.dumps({"workspace_id": "ws_1", "usage": dict.fromkeys("abcd", 1.5), "period_start": "2026-01-01"})
    event = "INSERT INTO webhooks_event (id, account_id, type, namespace_id, namespace_slug, data, key, created_at)"
    delivery = (
        "INSERT INTO webhooks_delivery (id, subscription_id, event_id, status, attempts, next_attempt_at, claim,"
        " last_error, created_at)"
    )
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    begun = time.perf_counter()
    for start in range(0, count, 500):
        some = range(start, min(start + 500, count))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(
                f"{event} VALUES (%s, %s, 'credits.usage', 'ns_1', 'n', %s, %s, %s)",
                [(f"evt_b{number}", account, data, f"b{number}", now) for number in some],
            )
            cursor.executemany(
                f"{delivery} VALUES (%s, %s, %s, 'pending', 0, %s, '', '', %s)",
                [(f"dlv_b{number}", hook, f"evt_b{number}", now, now) for number in some],
            )
    return time.perf_counter() - begun


def measure_cycle(workspaces: int) -> None:
    make_owners(workspaces)
    for name, subscribed in (("without a subscription", False), ("with one", True)):
        taken, grown = close_cycle(workspaces, subscribed=subscribed)
        met = taken < CLOSE_SECONDS and grown < CLOSE_MIB
        print(
            f"  a cycle of {workspaces} workspaces, {name}: {taken:.2f} s (less than {CLOSE_SECONDS}),"
            f" grew by {grown:.0f} MiB (less than {CLOSE_MIB}): {'met' if met else 'MISSED'}"
        )
    bare = bare_inserts(workspaces)
    print(f"  as many events and deliveries by bare statements: {bare:.2f} s, ratio {taken / bare:.2f}")


def load_namespace(number: int, records: int, workspaces: int, end: int) -> str:
    """A namespace with charged records of 30 days in even distances, and their sums, all by the database itself.

    As the meter writes them: one time for all workspaces of a tick.
    """
    from credits.prices import PriceTable
    from namespaces.models import Namespace
    from workspaces.models import ChargePosition, Metered

    namespace = Namespace.objects.create(account=_account(), name="n", slug=f"units-{number}")
    Metered.objects.bulk_create(
        Metered(workspace_id=f"ws_{number}_{each}", namespace_id=namespace.pk, account_id=namespace.account_id)
        for each in range(workspaces)
    )
    first = execute("SELECT MIN(id) FROM workspaces_metered WHERE namespace_id = %s", namespace.pk)[0][0]
    ticks = records // workspaces
    distance = DAYS * 86400 * 1_000_000 // ticks
    execute("SET session_replication_role = replica")  # foreign keys are right by construction
    execute(
        "INSERT INTO workspaces_meterrecord (metered_id, period_ms, tick, cpu_time_ns, memory_mb_ms, disk_bytes,"
        " network_bytes) SELECT w.id, 60000, %s - (n + 1) * CAST(%s AS bigint), 30000000000, 30720000,"
        " 18000000, 42000000 FROM generate_series(0, %s - 1) AS ticks(n), workspaces_metered w"
        " WHERE w.id >= %s AND w.namespace_id = %s"
        " ORDER BY n DESC, w.id",
        end * 1_000_000, distance, ticks, first, namespace.pk,
    )  # fmt: skip
    price = PriceTable.load().stored_price(end * 1_000_000, 30000000000, 30720000, 18000000, 42000000)
    for table, key, size in (("hour", "start", 3600), ("minute", "start", 60), ("tick", "tick", 0)):
        start = f"(r.tick / 1000000) / {size} * {size}" if size else "r.tick"
        execute(
            f"INSERT INTO workspaces_namespace{table} (namespace_id, {key}, records, cpu_time_ns, memory_mb_ms,"
            f" disk_bytes, network_bytes, credits) SELECT %s, {start}, COUNT(*), SUM(r.cpu_time_ns),"
            " SUM(r.memory_mb_ms), SUM(r.disk_bytes), SUM(r.network_bytes), COUNT(*) * CAST(%s AS bigint)"
            " FROM workspaces_meterrecord r JOIN workspaces_metered w ON w.id = r.metered_id WHERE w.namespace_id = %s"
            " GROUP BY 2",
            namespace.pk, price, namespace.pk,
        )  # fmt: skip
    last = execute("SELECT MAX(id) FROM workspaces_meterrecord")[0][0]
    ChargePosition.objects.update_or_create(pk=1, defaults={"record_id": last})
    return namespace.pk


def edge_ticks(namespace_id: str) -> tuple[int, int]:
    """Times of two ticks, the first and the last one of a namespace that lie inside of a minute."""
    inside = execute(
        "SELECT MIN(r.tick), MAX(r.tick) FROM workspaces_meterrecord r WHERE r.tick %% 60000000 > 0 AND r.metered_id ="
        " (SELECT MIN(id) FROM workspaces_metered WHERE namespace_id = %s)", namespace_id,
    )  # fmt: skip
    return inside[0][0], inside[0][1]


def _account() -> Any:
    from accounts.models import Account

    return Account.objects.get()


def milliseconds(call: Callable[[], Any], count: int) -> list[float]:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        found.append((time.perf_counter() - begun) * 1000)
    return found


def measure_units(records: int, workspaces: int) -> None:
    """Of 30 days in whole hours, and of almost 30 days that begin and end inside of a minute, as the default range
    does; both ends then have a tick of all workspaces in their minutes.
    """
    from workspaces.charging.selectors import usage_units

    end = int(time.time()) // 3600 * 3600
    begun = time.perf_counter()
    # Both have records in every hour.
    of_few = FEW // (DAYS * 24)
    few, many = load_namespace(0, FEW, of_few, end), load_namespace(1, records, workspaces, end)
    execute("ANALYZE")
    print(
        f"  {records} records of {workspaces} workspaces and {FEW} of {of_few} in {DAYS} days,"
        f" loaded in {time.perf_counter() - begun:.0f} s"
    )
    whole = (end - DAYS * 86400) * 1_000_000, end * 1_000_000
    first, last = edge_ticks(many)
    for name, (since, until) in (("whole hours", whole), ("inside of a minute", (first, last + 1))):
        for by_day in (True, False):
            taken: dict[str, list[float]] = {few: [], many: []}
            for _ in range(20):  # in turns
                for namespace in (few, many):
                    taken[namespace] += milliseconds(lambda: usage_units(namespace, since, until, by_day=by_day), 1)  # noqa: B023
            found = usage_units(many, since, until, by_day=by_day)[1].records
            ratio = show(
                f"usage units by {'day' if by_day else 'hour'}, {name}", taken[many], taken[few], unit="ms",
                bar=f"at most {UNITS_BAR}",
            )  # fmt: skip
            print(f"  {found} records in it: {'met' if ratio <= UNITS_BAR else 'MISSED'}")


def table_bytes() -> dict[str, int]:
    """With their indexes."""
    return {name: execute("SELECT pg_total_relation_size(%s)", name)[0][0] for name in TABLES}


def measure_day() -> None:
    """An hour of ticks, each charged by itself, times 24."""
    from workspaces.charging.services import charge_metered

    make_owners(DAY_WORKSPACES)
    before, now = table_bytes(), int(time.time()) // 3600 * 3600
    for tick in range(DAY_TICKS):
        write_ticks(1, now + tick * MINUTE)
        while charge_metered():
            pass
    print(f"  a day of {DAY_WORKSPACES} workspaces with their indexes, from an hour of it:")
    total = 0
    for name, size in table_bytes().items():
        grown = (size - before[name]) * 24
        total += grown
        print(f"    {name:<32} {grown / 1e6:8.1f} MB")
    print(f"    {'together':<32} {total / 1e6:8.1f} MB, {total / DAY_WORKSPACES / 1e3:.0f} kB a workspace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workspaces", type=int, default=10_000, help="of the cycle")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--metered", type=int, default=231, help="workspaces to which the records belong")
    parser.add_argument("--only", choices=["cycle", "units", "day"])
    options = parser.parse_args()
    os.environ.setdefault("PLATFORM_LOG_LEVEL", "ERROR")  # there is no Redis
    if options.only is None:
        for part in ("cycle", "day", "units"):
            run_part(part)
        return
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        prepare(state)
        if options.only == "cycle":
            measure_cycle(options.workspaces)
        elif options.only == "day":
            measure_day()
        else:
            make_owners(1)
            measure_units(options.records, options.metered)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def run_part(part: str) -> None:
    """In a process and a database of its own."""
    environment = {**os.environ, "PLATFORM_DATABASE_URL": new_database()}
    command = [sys.executable, "-m", "benchmarks.billing", "--only", part, *sys.argv[1:]]
    subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
