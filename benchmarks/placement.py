"""Placement: a host among 1,000 with 100,000 running workspaces beside one host with 100; 200 creates at once on 50
hosts beside as many on one host of the total size.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.placement [--hosts 1000] [--each 100] [--count 500]

The hosts are rows, as of the fake driver. Placing is timed as a create does it, in a transaction: choosing, taking,
inserting the row. Rounds of both sides take turns, so that what else the machine does meets both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from benchmarks.common import percentile, show_must
from benchmarks.sweep import prepare

PLACE_BAR = 1.5
RATE_BAR = 0.8
ROUNDS = 5
CREATES, CREATE_HOSTS, ACCOUNTS = 200, 50, 20
THREADS = 16
SIZES = {"cpu_millis": 100, "memory_mb": 256, "disk_size_mb": 64}
IMAGE = "docker.io/library/image-1:latest"
FITS = 6  # machines on each of the hosts of the creates: more than an even share, so some are full at the end
HOST = {"cpus": 64, "disk_mb": 1 << 24, "disk_free_mb": 1 << 24, "subnet": "10.200.0.0/20"}


def add_host(name: str, machines: int) -> Any:
    """A living host with memory for so many machines, beside its reserve."""
    from django.conf import settings
    from django.utils import timezone

    from vmbackend.driver import BootTemplate
    from vmbackend.models import Host

    memory = settings.ENV.memory_reserve_mb + machines * SIZES["memory_mb"]
    templates = [asdict(BootTemplate(1, 256, 80 << 20, 0.0)) for _ in range(4)]
    images = [f"docker.io/library/image-{number}:latest" for number in range(20)]
    more = {"memory_mb": memory, "templates": templates, "images": images, "labels": {"disk": "ssd"}}
    return Host.objects.create(name=name, last_seen_at=timezone.now(), **more, **HOST)


def add_workspaces(account: Any, hosts: list[Any], each: int) -> None:
    """So many running ones on every host, as copies of one row: encrypting 100,000 takes minutes."""
    from django.db import connection

    from workspaces.models import Workspace

    applied = {f"applied_{name}": value for name, value in SIZES.items()}
    first = Workspace.objects.create(
        account=account, namespace=account.namespaces.get(), name="w", image=IMAGE, status="running", env={},
        workloads=[], **SIZES, **applied,
    )  # fmt: skip
    key = "'ws_' || substr(md5(h.id || n), 1, 20)"
    own = {"id": key, "host_id": "h.id", "ip": "inet '10.200.0.2' + n", "slug": "NULL"}
    names = [field.column for field in Workspace._meta.concrete_fields]
    columns = ", ".join(own.get(name, f"w.{name}") for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO workspaces_workspace ({', '.join(names)}) SELECT {columns}"
            " FROM workspaces_workspace AS w, vmbackend_host AS h, generate_series(0, %s) AS n WHERE w.id = %s"
            " AND h.id = ANY(%s)",
            [each - 1, first.pk, [host.pk for host in hosts]],
        )


@contextmanager
def only(hosts: list[Any]) -> Iterator[None]:
    """Within it these hosts alone exist for placement."""
    from django.utils import timezone

    from vmbackend.models import Host

    Host.objects.update(last_seen_at=None)
    Host.objects.filter(pk__in=[host.pk for host in hosts]).update(last_seen_at=timezone.now())
    yield


def timed_places(count: int) -> list[float]:
    """Milliseconds of each placement: from the choice to the address, under the locks of a create."""
    from django.db import transaction

    from workspaces.crud.places import find_place
    from workspaces.quota import Amount

    amount, taken = Amount(**SIZES), []
    for _ in range(count):
        with transaction.atomic():
            begun = time.perf_counter()
            find_place(amount, IMAGE, may_be_warm=False)
            taken.append((time.perf_counter() - begun) * 1000)
            transaction.set_rollback(True)
    return taken


def timed_creates(actor: Any, count: int) -> list[float]:
    """Milliseconds of whole creates, committed."""
    from workspaces.crud.services import NewWorkspace, workspace_create

    new, taken = NewWorkspace(image=IMAGE, sizes=SIZES), []
    for _ in range(count):
        begun = time.perf_counter()
        made = workspace_create(actor=actor, new=new)
        taken.append((time.perf_counter() - begun) * 1000)
        _forget(made.workspace.pk)
    return taken


def _forget(workspace_id: str) -> None:
    from workspaces.models import Workspace

    Workspace.objects.filter(pk=workspace_id).delete()


def show_shares(name: str, one: list[float], many: list[float], bar: float | None) -> None:
    for title, values in ((f"{name}, one host", one), (f"{name}, all hosts", many)):
        shares = ", ".join(f"p{share * 100:g} {percentile(values, share):.2f}" for share in (0.5, 0.9, 0.99))
        print(f"  {title:<28} {shares} ms, n={len(values)}")
    for share in (0.5, 0.99):
        ratio = percentile(many, share) / percentile(one, share)
        if bar is None:
            print(f"  {name} p{share * 100:g}: ratio {ratio:.2f}")
        else:
            print(f"  {name} p{share * 100:g}:", end="")
            show_must(ratio, bar)


def measure_places(options: argparse.Namespace) -> None:
    from django.db import connection

    account, actor = make_account("places")
    few = [add_host("alone", 10 * options.each)]
    many = [add_host(f"host-{number:04}", 10 * options.each) for number in range(options.hosts)]
    add_workspaces(account, few + many, options.each)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    print(f"  {options.hosts} hosts with {options.each} running workspaces each, beside one")
    sides: dict[str, list[list[float]]] = {"place": [[], []], "create": [[], []]}
    for _ in range(ROUNDS):
        for side, hosts in enumerate((few, many)):
            with only(hosts):
                timed_places(5)
                sides["place"][side] += timed_places(options.count // ROUNDS)
                sides["create"][side] += timed_creates(actor, options.count // ROUNDS // 2)
    show_shares("place", *sides["place"], PLACE_BAR)
    show_shares("create", *sides["create"], None)


def make_account(name: str) -> tuple[Any, Any]:
    from accounts.actors import Actor
    from accounts.models import Account, Plan
    from accounts.scopes import Scope
    from accounts.services import account_create

    large, cpus = 1 << 30, 9_999_999
    plan, _ = Plan.objects.get_or_create(
        code="bench", label="Bench", max_workspaces=large, cpus=12, memory_mb=large, disk_size_mb=large, pool_cpus=cpus,
        pool_memory_mb=large, pool_disk_size_mb=large, running_cpus=cpus, running_memory_mb=large,
        running_disk_size_mb=large,
    )  # fmt: skip
    account, _ = account_create(name=name, plan=plan.code)
    account = Account.objects.get(pk=account.pk)
    return account, Actor(account, Scope.ACCOUNT, credential_id="bench", label="bench")


def creates_a_second(actors: list[Any], hosts: list[Any]) -> float:
    """The rate of a crowd's creates, which all threads of an api process carry out; each host has at most what fits."""
    from django.db import connections

    from workspaces.crud.services import NewWorkspace, workspace_create
    from workspaces.models import Workspace

    new, start = NewWorkspace(image=IMAGE, sizes=SIZES), threading.Barrier(THREADS + 1)
    made: list[str] = []

    def work(number: int) -> None:
        try:
            start.wait(30)
            for each in range(number, CREATES, THREADS):
                made.append(workspace_create(actor=actors[each % len(actors)], new=new).workspace.pk)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=[number]) for number in range(THREADS)]
    with only(hosts):
        for thread in threads:
            thread.start()
        start.wait(30)
        begun = time.perf_counter()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - begun
    if len(made) != CREATES:
        raise SystemExit(f"{len(made)} of {CREATES} creates succeeded")
    on_each = Counter(Workspace.objects.filter(pk__in=made).values_list("host_id", flat=True))
    if len(hosts) > 1 and max(on_each.values()) > FITS:
        raise SystemExit(f"a host has {max(on_each.values())} machines and room for {FITS}")
    Workspace.objects.filter(pk__in=made).delete()
    return CREATES / taken


def measure_creates() -> None:
    actors = [make_account(f"crowd {number}")[1] for number in range(ACCOUNTS)]
    many = [add_host(f"crowd-{number:02}", FITS) for number in range(CREATE_HOSTS)]
    one = [add_host("crowd-alone", FITS * CREATE_HOSTS)]
    print(f"  {CREATES} creates at once of {ACCOUNTS} accounts, {CREATE_HOSTS} hosts with room for {FITS} each")
    creates_a_second(actors, one)
    rounds = [(creates_a_second(actors, one), creates_a_second(actors, many)) for _ in range(ROUNDS)]
    ratios = sorted(many_rate / one_rate for one_rate, many_rate in rounds)
    for title, rates in (("one host", [a for a, _ in rounds]), ("50 hosts", [b for _, b in rounds])):
        print(f"  {title:<28} {statistics.median(rates):.0f}/s, {min(rates):.0f} to {max(rates):.0f}/s")
    middle = statistics.median(ratios)
    verdict = "met" if middle >= RATE_BAR else "MISSED"
    print(f"  ratio {middle:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f} (at least {RATE_BAR}: {verdict})")


def send_nothing() -> None:
    """Without the wake-ups of the hosts, which are rows only: there is no Redis."""
    from workspaces.operations import queue

    queue.notify_host = lambda operation: None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--part", choices=["creates", "places"], help="default: both")
    options = parser.parse_args()
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        os.environ["PLATFORM_LOG_LEVEL"] = "WARNING"
        prepare(state)
        send_nothing()
        if options.part != "places":
            measure_creates()
        if options.part != "creates":
            measure_places(options)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
