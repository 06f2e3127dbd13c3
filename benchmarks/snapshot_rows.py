"""Many snapshots: their list beside that of as many workspaces, and what the processes of a host hold with them. Rows
are real; machines and the store's entries are the fake driver's.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.snapshot_rows list [--rounds 15] [--rows 10000]
    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.snapshot_rows held [--rounds 3] [--rows 1000]

`list`: one account has that many of both, and one workspace was made from each snapshot; a server of its own, and
Django's test client. `held`: an instance of its own, whose processes are killed before each measurement; then they
reconcile and serve for some seconds. First with a page of sleeping workspaces and snapshots, then with so many more.
What libvirt holds of a machine that is defined is not in it: the fake driver keeps its machines in files.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import show, show_must
from benchmarks.sweep import prepare

if TYPE_CHECKING:
    from tests.vm.instances import TestInstance

LIST_RATIO = 1.2
LIMITS = (20, 100)  # the default and the largest
REQUESTS = 20  # of each list in a round, in turns
PAGE = 20
PROCESSES = ("vmhost", "api")
SETTLE_SECONDS = 20.0  # some reconciles
SERVED = 100  # requests of each kind
ROOT = Path(__file__).resolve().parent.parent


def measure_lists(rows: int, rounds: int) -> None:
    """Compare both lists, in turns, and print the number of queries of each."""
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        prepare(state)
        headers = _fill_lists(rows)
        for limit in LIMITS:
            _compare_lists(headers, limit, rounds)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def _fill_lists(rows: int) -> dict[str, str]:
    """Make the rows of one account; return its headers."""
    from django.conf import settings
    from django.db import connection

    from benchmarks.rows import fill
    from tests.workspaces.rows import make_host, snapshot_row
    from workspaces.models import Snapshot, Workspace

    settings.ALLOWED_HOSTS = ["testserver"]
    headers: dict[str, str] = fill("many", rows)["headers"]
    workspaces = list(Workspace.objects.all())
    host = make_host()
    made = Snapshot.objects.bulk_create([snapshot_row(each, host=host) for each in workspaces], batch_size=1000)
    for workspace, snapshot in zip(workspaces, made, strict=True):
        workspace.source_snapshot_id = snapshot.pk
    Workspace.objects.bulk_update(workspaces, ["source_snapshot_id"], batch_size=1000)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")  # as autovacuum does within a minute
    return headers


def _compare_lists(headers: dict[str, str], limit: int, rounds: int) -> None:
    paths = (f"/snapshots?limit={limit}", f"/workspace?limit={limit}")
    queries = [_count_queries(path, headers) for path in paths]
    ours, baseline = list[float](), list[float]()
    for _ in range(rounds):
        pairs = [[_seconds(path, headers) for path in paths] for _ in range(REQUESTS)]
        for times, seconds in zip((ours, baseline), zip(*pairs, strict=True), strict=True):
            times.append(statistics.median(seconds) * 1000)
    ratio = show(f"snapshots, {limit} of a page", ours, baseline, unit="ms", bar="of the list of workspaces")
    show_must(ratio, LIST_RATIO)
    print(f"  must / seen: queries the same / {queries[0]} and {queries[1]}", flush=True)


def _count_queries(path: str, headers: dict[str, str]) -> int:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    _seconds(path, headers)  # the first request reads more
    with CaptureQueriesContext(connection) as captured:
        _seconds(path, headers)
    return len(captured)


def _seconds(path: str, headers: dict[str, str]) -> float:
    from django.test import Client

    begun = time.perf_counter()
    answer = Client().get(path, headers=headers)
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code} {answer.content[:300]!r}")
    return time.perf_counter() - begun


def plant(rows: int) -> None:
    """Make that many sleeping workspaces of the only account with their machines, and a stored snapshot of each.

    The files come first: a row without them would be lost.
    """
    import django

    django.setup()
    from django.conf import settings

    from accounts.models import Account
    from accounts.services import workspaces_counted
    from tests.workspaces.rows import snapshot_row
    from vmbackend.models import Host
    from workspaces.models import Snapshot, Workspace

    account, host = Account.objects.get(), Host.objects.get()
    before = Workspace.objects.count()
    made = [_sleeping_row(account, host, before + number) for number in range(rows)]
    snapshots = [snapshot_row(each, host=host, memory=True, name=f"kept {each.slug}") for each in made]
    _make_machines(settings.ENV.machines_dir, made, snapshots)
    Workspace.objects.bulk_create(made, batch_size=500)
    workspaces_counted(account, before + rows)
    Snapshot.objects.bulk_create(snapshots, batch_size=500)


def _sleeping_row(account: Any, host: Any, number: int) -> Any:
    from common.ids import new_id
    from workspaces.models import Workspace

    sizes = {"cpu_millis": 1000, "memory_mb": 128, "disk_size_mb": 128}  # all of them fit the fake host
    applied = {f"applied_{name}": value for name, value in sizes.items()}
    return Workspace(
        id=new_id("ws"), account=account, namespace=account.namespaces.get(), host=host, name=f"workspace {number}",
        slug=f"workspace-{number}", image="localhost/bench:1", image_digest="sha256:0", status="sleeping",
        provisioning_state="ready", ip=f"10.99.{number // 250}.{number % 250 + 2}", **sizes, **applied,
    )  # fmt: skip


def _make_machines(folder: Path, rows: list[Any], snapshots: list[Any]) -> None:
    from vmbackend.driver import Boot, MachineSpec
    from vmbackend.fake.driver import FakeDriver

    driver = FakeDriver(folder)
    size = driver.capacity()
    driver._store.capacity = lambda: size  # type: ignore[method-assign] # which would read every machine each time
    for row, snapshot in zip(rows, snapshots, strict=True):
        driver.prepare(
            MachineSpec(row.pk, row.image_digest, 1, row.memory_mb, row.disk_size_mb, row.ip, Boot(row.slug))
        )
        driver.start(row.pk)
        driver.snapshot(row.pk, snapshot.pk)
        driver.sleep(row.pk)


@dataclass(frozen=True)
class Held:
    """Memory of processes in MiB, and their open files."""

    memory: float
    files: int


def measure_held(rows: int, rounds: int) -> None:
    """Compare what fresh processes hold with few rows and with many."""
    from tests.vm.instances import new_instance

    grace = {"PLATFORM_ORPHAN_GRACE_SECONDS": "3600"}  # machines are made before their rows
    with new_instance(images=False, PLATFORM_VM_BACKEND="fake", **grace) as instance:
        instance.start()
        _plant_in(instance, PAGE)
        few = [_measure_fresh(instance) for _ in range(rounds)]
        _plant_in(instance, rows)
        many = [_measure_fresh(instance) for _ in range(rounds)]
        _require_asleep(instance, rows + PAGE)
    for name in PROCESSES:
        _show_growth(name, [each[name] for each in few], [each[name] for each in many], rows)


def _plant_in(instance: TestInstance, rows: int) -> None:
    from supervise.configuration import process_environment
    from supervise.orphans import ROLE

    environment = process_environment(instance.instance, instance.settings, supervised=True) | {ROLE: "command"}
    environment["DJANGO_SETTINGS_MODULE"] = "config.settings"
    command = [sys.executable, "-m", "benchmarks.snapshot_rows", "plant", "--rows", str(rows)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)


def _measure_fresh(instance: TestInstance) -> dict[str, Held]:
    """Start the processes again, let them work, and return what each of PROCESSES holds with its children."""
    instance.kill(*PROCESSES)
    instance.wait_until_serving()
    http = instance.api().http
    for _ in range(SERVED):
        for path in (f"/workspace?limit={PAGE}", f"/snapshots?limit={PAGE}"):
            http.get(path).raise_for_status()
    time.sleep(SETTLE_SECONDS)
    tree = instance.process_tree()
    found = {name: _held([pid for pid, role in tree.items() if role == name]) for name in PROCESSES}
    print(
        "  " + ", ".join(f"{name} {held.memory:.1f} MiB, {held.files} files" for name, held in found.items()),
        flush=True,
    )
    return found


def _held(pids: list[int]) -> Held:
    memory, files = 0.0, 0
    for folder in (Path(f"/proc/{pid}") for pid in pids):
        status = (folder / "status").read_text().splitlines()
        memory += next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
        files += len(list((folder / "fd").iterdir()))
    return Held(memory, files)


def _require_asleep(instance: TestInstance, rows: int) -> None:
    """End the run unless every row is as it was planted: a reconcile that changed them would have measured less."""
    asleep = "SELECT count(*) FROM workspaces_workspace WHERE status = 'sleeping'"
    ready = "SELECT count(*) FROM workspaces_snapshot WHERE status = 'ready'"
    found = [instance.query(sql)[0][0] for sql in (asleep, ready)]
    if found != [rows, rows]:
        raise SystemExit(f"{found} of {rows} workspaces sleep and snapshots are ready")


def _show_growth(name: str, few: list[Held], many: list[Held], rows: int) -> None:
    """Print the growth of the medians beside the noise, which is how far measurements of the same differ at most."""
    for title, unit, before, after in (
        ("resident memory", " MiB", [each.memory for each in few], [each.memory for each in many]),
        ("open files", "", [float(each.files) for each in few], [float(each.files) for each in many]),
    ):
        growth = statistics.median(after) - statistics.median(before)
        noise = max(max(values) - min(values) for values in (before, after))
        print(
            f"  {name}, {title}: median {statistics.median(before):.1f}{unit}, with {rows} of both more"
            f" {statistics.median(after):.1f}{unit}, n={len(after)}"
        )
        verdict = "met" if growth <= noise else "MISSED"
        print(f"  must / seen: growth 0{unit} / {growth:.1f}{unit}, noise {noise:.1f}{unit}: {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("list", "held", "plant"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    if options.part == "plant":  # within the instance of `held`
        plant(options.rows)
    elif options.part == "list":
        measure_lists(options.rows or 10_000, options.rounds or 15)
    else:
        measure_held(options.rows or 1000, options.rounds or 3)


if __name__ == "__main__":
    main()
