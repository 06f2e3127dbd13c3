"""Passes that die: at each of their statements, by a connection that is cut, and by SIGKILL at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import Error, connection
from django.db.models import Sum

from credits import ledger
from credits.entries import Purpose
from credits.models import Balance, Entry, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.killed_process import database_url
from tests.workspaces.usage.test_charging import HOUR_NS, TICK, metered, record
from workspaces.charging import services as charging
from workspaces.models import MeterRecord

pytestmark = pytest.mark.django_db(transaction=True)

STATEMENTS = 30  # more than a pass has
BATCH = 5
KILLS = 20


@contextmanager
def cut_at(statement: int) -> Iterator[None]:
    """The connection ends just before that statement, counted from 0, and the pass with it."""
    seen = 0

    def execute(run: Any, *arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == statement + 1:
            connection.connection.close()
        return run(*arguments)

    try:
        with connection.execute_wrapper(execute):
            yield
    except (Error, psycopg.Error):  # of a closed connection not all are Django's own
        pass
    finally:
        connection.close()


@pytest.fixture
def team(api: Caller) -> Namespace:
    """With a quota that each pass exceeds, so that it suspends; each reset lifts that."""
    made = Namespace.objects.create(account=api.account, name="Team", slug="team")
    quota: dict[str, Any] = {"limit": Decimal("0.5"), "overdraft": Decimal(0), "action": "block", "thresholds": [80]}
    ledger.quota_set(namespace=made, service=Service.SANDBOX, **quota)
    return made


def test_a_connection_that_is_cut_at_any_statement_leaves_all_or_nothing(team: Namespace) -> None:
    for number in range(STATEMENTS):
        record(metered(team, f"ws_{number}"), TICK + number, cpu_time_ns=HOUR_NS)
        with cut_at(number):
            charging.charge_metered()
        charged = Entry.objects.filter(kind="charge").aggregate(sum=Sum("amount", default=Decimal(0)))["sum"]
        assert charged in (number, number + 1)
        call_command("ledger_check")
        assert charging.charge_metered() == number + 1 - charged
        ledger.quota_reset(namespace=team, service=Service.SANDBOX, actor="staff")
    assert Entry.objects.filter(kind="charge").aggregate(sum=Sum("amount"))["sum"] == STATEMENTS


@pytest.fixture
def charger() -> Iterator[Callable[[], int]]:
    """Begins a process that charges, each time that it is called; it must have been killed before the next call."""
    environment = {
        **os.environ,
        "PLATFORM_DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": f"{settings.ROOT}:{settings.ROOT}/platform",
    }
    command = [sys.executable, "-m", "tests.workspaces.charging.charger", str(BATCH)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=settings.ROOT, text=True, bufsize=1, **pipes) as process:
        assert process.stdout.readline() == "ready\n"

        def begin() -> int:
            process.stdin.write("\n")
            return int(process.stdout.readline())

        begin.ended = process.stdout.readline  # type: ignore[attr-defined]
        yield begin
        process.kill()


def test_a_pass_that_is_killed_at_any_moment_leaves_all_or_nothing(
    api: Caller, team: Namespace, charger: Callable[[], int]
) -> None:
    chosen, default = random.Random(7), Namespace.objects.get(account=api.account, is_default=True)
    owners = [metered(namespace, f"ws_{number}") for number, namespace in enumerate((default, default, team, team))]
    made, interrupted = 0, 0
    for _ in range(KILLS):
        MeterRecord.objects.bulk_create(
            new_record(owners[number % 4], TICK + number) for number in range(made, made + 200)
        )
        made += 200
        before, process = charged_sum(), charger()
        until_charged(before)
        time.sleep(chosen.uniform(0, 0.03))
        os.kill(process, signal.SIGKILL)
        assert charger.ended() == "ended\n"  # type: ignore[attr-defined]
        left = made - int(charged_sum())
        interrupted += left > 0
        ledger.credits_charge(namespace=team, service=Service.SANDBOX, amount=Decimal(0), purpose=Purpose())
    assert interrupted, "no pass was killed in the middle"
    call_command("ledger_check")
    while charging.charge_metered():
        pass
    assert charged_sum() == made
    assert sum(Balance.objects.values_list("used", flat=True)) == made
    call_command("ledger_check")


def until_charged(before: Decimal) -> None:
    deadline = time.monotonic() + 120
    while charged_sum() == before:
        assert time.monotonic() < deadline, "nothing is charged"
        time.sleep(0.002)


def charged_sum() -> Decimal:
    return Entry.objects.aggregate(sum=Sum("amount", default=Decimal(0)))["sum"]


def new_record(owner: Any, tick: int) -> MeterRecord:
    """It costs one credit."""
    amounts = {"cpu_time_ns": HOUR_NS, "memory_mb_ms": 0, "disk_bytes": 0, "network_bytes": 0}
    return MeterRecord(metered=owner, tick=tick, period_ms=60000, **amounts)
