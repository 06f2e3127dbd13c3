"""Charging: metered records a second beside bare `UPDATE ... RETURNING` and commit; hold and settle on one hot row.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.charge [--workspaces 1000] [--ticks 60] [--seconds 5]

The baseline is what charging each record by itself would take at least: one statement of the driver, committed.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg

from benchmarks.sweep import prepare

BAR = 10.0
HOLD_BAR = 0.3
THREADS = 16
TICK_SECONDS = 1
NAMESPACES = 20
ROUNDS = 5


def make_owners(workspaces: int) -> Any:
    """Rows of Metered in some namespaces of one account; returns a namespace."""
    from accounts.services import account_create
    from namespaces.models import Namespace
    from workspaces.models import Metered

    account, _ = account_create(name="bench", plan="scale")
    found = [Namespace.objects.create(account=account, name="n", slug=f"n-{number}") for number in range(NAMESPACES)]
    Metered.objects.bulk_create(
        Metered(workspace_id=f"ws_{number:013}", namespace_id=found[number % NAMESPACES].pk, account_id=account.pk)
        for number in range(workspaces)
    )
    return found[0]


def write_ticks(ticks: int, until: float) -> int:
    """So many records of every workspace, the last ones at `until`; returns how many.

    As the meter writes them: one time for all workspaces of a tick.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO workspaces_meterrecord (metered_id, period_ms, tick, cpu_time_ns, memory_mb_ms, disk_bytes,"
            " network_bytes) WITH RECURSIVE ticks(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ticks WHERE n + 1 < %s)"
            " SELECT id, 60000, %s - n * 1000000 * %s, 30000000000 + id, 30720000, 18000000, 42000000"
            " FROM ticks, workspaces_metered ORDER BY n DESC, id",
            [ticks, int(until * 1e6), TICK_SECONDS],
        )
        return int(cursor.rowcount)


# Of the last ticks that are written together: none has a time twice, and none counts as late.
_times = itertools.count(time.time(), 400.0)


def charged_a_second(ticks: int, *, at_once: bool) -> float:
    """Records a second: each tick by a pass of its own, as after each commit of a meter, or all by one."""
    from workspaces.charging.services import charge_metered

    charged, taken = 0, 0.0
    for _ in range(1 if at_once else ticks):
        written = write_ticks(ticks if at_once else 1, next(_times))
        begun = time.perf_counter()
        while written > 0:
            done = charge_metered()
            if not done:
                raise SystemExit("nothing was charged")
            charged, written = charged + done, written - done
        taken += time.perf_counter() - begun
    return charged / taken


def bare_connection() -> Any:
    """The driver's own, which commits each statement."""
    from django.db import connection

    parameters = connection.get_connection_params()
    known = {name: parameters[name] for name in ("dbname", "user", "host", "port") if parameters.get(name)}
    return psycopg.connect(**known, autocommit=True)


def bare_update(made: Any, key: int) -> Callable[[], Any]:
    statement = "UPDATE credits_balance SET used = used + 1 WHERE id = %s RETURNING used"
    cursor = made.cursor()
    return lambda: cursor.execute(statement, (key,)).fetchall()


def rate(call: Callable[[], Any], seconds: float) -> float:
    """Calls a second, one after the other."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - begun)


def rate_of_threads(make: Callable[[], Callable[[], Any]], seconds: float) -> float:
    """Calls a second of all threads. `make` runs in each."""
    from django.db import connections

    counts: list[int] = []
    ready, failed = threading.Barrier(THREADS), list[BaseException]()

    def work() -> None:
        try:
            call = make()
            ready.wait()
            begun, count = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                call()
                count += 1
            counts.append(count)
        except BaseException as exc:
            failed.append(exc)
            raise
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"a thread failed: {failed[0]}")
    return sum(counts) / seconds


def hold_and_settle(namespace: Any, keys: Iterator[int]) -> Callable[[], Any]:
    from credits import holds
    from credits.models import Service

    def pair() -> None:
        key, amount = f"bench-{next(keys)}", Decimal("0.001")
        holds.credits_hold(namespace=namespace, service=Service.AI, amount=amount, key=key)
        holds.hold_settle(namespace=namespace, service=Service.AI, key=key, amount=amount)

    return pair


def show_ratios(name: str, ours: Callable[[], float], bare: Callable[[], float], bar: float | None) -> None:
    """Both in turns, so that what else the machine does meets both; the median of the rounds' ratios."""
    rounds = [(bare(), ours()) for _ in range(ROUNDS)]
    ratios = sorted(mine / theirs for theirs, mine in rounds)
    middle, mine, theirs = ratios[ROUNDS // 2], statistics.median(m for _, m in rounds), min(t for t, _ in rounds)
    verdict = "" if bar is None else f" (at least {bar}: {'met' if middle >= bar else 'MISSED'})"
    print(
        f"  {name:<40} {mine:9.0f}/s, bare {theirs:7.0f} to {max(t for t, _ in rounds):.0f}/s:"
        f" ratio {middle:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}{verdict}"
    )


def measure(options: argparse.Namespace) -> None:

    from credits import ledger
    from credits.models import Service

    namespace = make_owners(options.workspaces)
    hot = ledger.quota_set(
        namespace=namespace, service=Service.AI, limit=Decimal(10**6), overdraft=Decimal(0), action="block",
        thresholds=[80],
    )  # fmt: skip
    made, bar, slice_of = bare_connection(), BAR, options.seconds / ROUNDS
    charged_a_second(2, at_once=False)  # the first cycle, plans of statements
    print(f"  {options.workspaces} workspaces in {NAMESPACES} namespaces, {options.ticks} ticks")

    def bare() -> float:
        return rate(bare_update(made, hot.pk), slice_of)

    ticks = max(1, options.ticks // ROUNDS)
    show_ratios("records, a backlog in full batches", lambda: charged_a_second(ticks, at_once=True), bare, bar)
    show_ratios("records, a pass for each tick", lambda: charged_a_second(ticks, at_once=False), bare, None)
    keys = itertools.count()

    def bare_of_threads() -> float:
        return rate_of_threads(lambda: bare_update(bare_connection(), hot.pk), slice_of)

    def transactions() -> float:
        return 2 * rate_of_threads(lambda: hold_and_settle(namespace, keys), slice_of)

    show_ratios(f"hold + settle, {THREADS} threads, transactions", transactions, bare_of_threads, HOLD_BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workspaces", type=int, default=1000)
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=10, help="of each baseline")
    options = parser.parse_args()
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        prepare(state)
        measure(options)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
