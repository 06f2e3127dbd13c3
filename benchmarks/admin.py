"""The dashboard and every list of the admin with many rows beside few: the same queries, and how much longer they take.

    python -m benchmarks.admin --workspaces 100000 --records 1000000 --activity 1000000

Builds two databases, SQLite files below --folder, or one after the other that of BENCH_DATABASE_URL (PostgreSQL; it is
emptied): one with a thousand rows of each kind, one with the given sizes. Prints for each page the queries, the median
time with few and with many rows, and their ratio. Each page is rendered whole, by Django's test client, as superuser.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FEW = 1000


def main() -> None:
    given = _arguments()
    if given.child:
        _measure_all(given)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        results = {name: _child(given, Path(folder) / f"{name}.sqlite3", name) for name in ("few", "many")}
    few, many = results["few"], results["many"]
    print(f"{'page':44} {'queries':>9} {'few, ms':>9} {'many, ms':>9} {'ratio':>6}")
    worst = 0.0
    for page, (queries, seconds) in many.items():
        base_queries, base = few[page]
        ratio = seconds / base
        worst = max(worst, ratio)
        same = f"{queries}" if queries == base_queries else f"{base_queries}->{queries}"
        print(f"{page:44} {same:>9} {base * 1e3:9.1f} {seconds * 1e3:9.1f} {ratio:6.2f}")
    print(f"worst ratio {worst:.2f}; dashboard {many['dashboard'][1] * 1e3:.0f} ms")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspaces", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=1_000_000, help="metering records")
    parser.add_argument("--activity", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(given: argparse.Namespace, database: Path, name: str) -> dict[str, tuple[int, float]]:
    sizes = (given.workspaces, given.records, given.activity) if name == "many" else (FEW, FEW, FEW)
    options = [f"--{option}={size}" for option, size in zip(("workspaces", "records", "activity"), sizes, strict=True)]
    url = os.environ.get("BENCH_DATABASE_URL") or f"sqlite:///{database}"
    own = {"STATE": str(database.parent), "DATABASE_URL": url, "SECRET_KEY": "a-key-of-the-benchmark-alone-0123456789"}
    env = {**os.environ, "PLATFORM_VM_BACKEND": "fake", **{f"PLATFORM_{key}": value for key, value in own.items()}}
    command = [sys.executable, "-m", "benchmarks.admin", "--child", name, f"--rounds={given.rounds}", *options]
    answer = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    rows = [line.split("\t") for line in answer.stdout.splitlines() if line.count("\t") == 2]
    return {page: (int(queries), float(seconds)) for page, queries, seconds in rows}


def _measure_all(given: argparse.Namespace) -> None:
    import django
    from django.core.management import call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.conf import settings

    settings.ALLOWED_HOSTS = ["testserver"]
    call_command("migrate", verbosity=0)
    if os.environ.get("BENCH_DATABASE_URL"):  # the same one for both sizes
        call_command("flush", interactive=False, verbosity=0)
        call_command("migrate", verbosity=0)
    started = time.monotonic()
    _fill(given)
    print(f"{given.child}: filled in {time.monotonic() - started:.0f} s", file=sys.stderr)
    _pages(given.rounds)


def _fill(given: argparse.Namespace) -> None:
    from django.db import connection

    from dashboard.summary import summary_take
    from tests.dashboard.sample import make_sample, make_trend

    make_sample(20)
    make_trend()
    _workspaces(given.workspaces)
    _activity(given.activity)
    _records(given.records)
    started = time.monotonic()
    summary_take()
    print(f"{given.child}: summary in {time.monotonic() - started:.1f} s", file=sys.stderr)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _workspaces(count: int) -> None:
    """Copies of those of the sample, nine of ten of them asleep, and as many operations that succeeded."""
    from workspaces.models import Operation, Workspace

    states = "CASE WHEN number % 10 = 0 THEN status ELSE 'sleeping' END"
    changed = {"id": _new_id("ws"), "slug": "NULL", "ip": "NULL", "status": states, "ready": "false"}
    _multiply(Workspace, "status <> 'starting'", count, changed)
    _multiply(Operation, "state = 'succeeded'", count, {"id": _new_id("op")})


def _activity(count: int) -> None:
    from workspaces.models import Activity

    _multiply(Activity, "1 = 1", count, {})


def _records(count: int) -> None:
    from workspaces.models import MeterRecord

    _multiply(MeterRecord, "tick > 1000000000", count, {"tick": "number"})


def _new_id(prefix: str) -> str:
    """Nine digits, and the end of the id that is copied."""
    from django.db import connection

    digits = "printf('%09d', number)" if connection.vendor == "sqlite" else "to_char(number, 'FM000000000')"
    return f"'{prefix}_' || {digits} || substr(id, 13)"


def _multiply(model: Any, which: str, count: int, changed: dict[str, str]) -> None:
    """Copy the rows until there are about `count`, with SQL for the columns that differ. Numbered keys are new."""
    from django.db import connection

    table = model._meta.db_table
    columns = [field.column for field in model._meta.concrete_fields if field.get_internal_type() != "BigAutoField"]
    values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table} WHERE {which}")
        times = count // cursor.fetchone()[0]
        numbers = f"WITH RECURSIVE n(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n WHERE number < {times})"
        cursor.execute(f"{numbers} INSERT INTO {table} ({names}) SELECT {values} FROM {table}, n WHERE {which}")


def _pages(rounds: int) -> None:
    from django.contrib import admin
    from django.contrib.auth import get_user_model
    from django.test import Client
    from django.urls import reverse

    client = Client()
    client.force_login(get_user_model().objects.create_superuser("bench"))
    pages = {"dashboard": "/admin/"}
    for model in sorted(admin.site._registry, key=lambda each: each._meta.label):
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        pages[model._meta.label] = url
    pages["workspaces.Workspace running"] = f"{pages['workspaces.Workspace']}?status__exact=running"
    pages["workspaces.Operation failed"] = f"{pages['workspaces.Operation']}?attention=failed"
    for name, url in pages.items():
        _measure(client, name, url, rounds)


def _measure(client: object, name: str, url: str, rounds: int) -> None:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    assert isinstance(client, Client)
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200, url
        queries = len(captured)
    # SQLite works in this process, whose own time is not that of others on the machine.
    clock = time.process_time if connection.vendor == "sqlite" else time.perf_counter
    taken = []
    for _ in range(rounds):
        started = clock()
        client.get(url)
        taken.append(clock() - started)
    print(f"{name}\t{queries}\t{statistics.median(taken)}", flush=True)


if __name__ == "__main__":
    main()
