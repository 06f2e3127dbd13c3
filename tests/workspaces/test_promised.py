"""Counters of hosts are the sums of their workspaces after whatever writes these; a drift is found and repaired."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.actors import Actor
from accounts.scopes import Scope
from common.counters import read_values
from common.errors import DomainError
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import run_at_once
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.models import Host
from workspaces import power, promised
from workspaces.crud import services
from workspaces.crud.services import NewWorkspace
from workspaces.models import Operation, Workspace
from workspaces.resources.services import resources_update
from workspaces.states import NO_MACHINE, USES_RUNNING_POOL, Status
from workspaces.transitions import TransitionLost, transition

COUNTERS = tuple(promised.SUMS)


def counters_of(host: Host) -> tuple[int, ...]:
    found: tuple[int, ...] = Host.objects.values_list(*COUNTERS).get(pk=host.pk)
    return found


def sums_of(host: Host) -> tuple[int, ...]:
    """Return what the counters must be, added up here."""
    rows = list(Workspace.objects.filter(host=host))
    running = [row for row in rows if row.status in USES_RUNNING_POOL]
    return (
        sum(row.applied_memory_mb for row in running),
        sum(row.applied_disk_size_mb for row in rows if row.status not in NO_MACHINE),
        len(running),
        sum(row.status == Status.SLEEPING for row in rows),
        sum(row.status in (Status.STOPPED, Status.LOST) for row in rows),
    )


@pytest.mark.django_db
@pytest.mark.parametrize("status", list(Status))
def test_a_row_of_each_state_counts_as_that_state(api: Caller, status: Status) -> None:
    host, other = make_host(), make_host("other")
    row = make_workspace(api.account, host=host, status=status, memory_mb=256, disk_size_mb=512)
    assert counters_of(host) == sums_of(host)
    row.host = other
    row.save()
    assert (counters_of(host), counters_of(other)) == ((0,) * 5, sums_of(other))
    row.delete()
    assert counters_of(other) == (0,) * 5


@pytest.mark.django_db
def test_rows_of_several_hosts_in_one_statement_are_counted(api: Caller) -> None:
    hosts = [make_host(f"host-{number}") for number in range(3)]
    rows = [make_workspace(api.account, host=host, memory_mb=size) for size in (128, 256) for host in hosts]
    copies = [Workspace(**{**_columns(row), "slug": f"{row.slug}-2", "id": f"{row.pk}x"}) for row in rows]
    Workspace.objects.bulk_create(copies)
    assert [counters_of(host) for host in hosts] == [sums_of(host) for host in hosts]
    Workspace.objects.filter(memory_mb=128).update(status=Status.SLEEPING)
    Workspace.objects.filter(memory_mb=256).update(host=hosts[0])
    assert [counters_of(host) for host in hosts] == [sums_of(host) for host in hosts]
    Workspace.objects.filter(memory_mb=256).delete()
    assert [counters_of(host) for host in hosts] == [(0, 128, 0, 2, 0)] * 3


def _columns(row: Workspace) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in Workspace._meta.concrete_fields}


@pytest.mark.django_db
def test_a_change_that_moves_nothing_between_the_sums_leaves_the_host_alone(api: Caller) -> None:
    host = make_host()
    row = make_workspace(api.account, host=host)
    before = _version(host)
    transition(row, Status.PAUSING)
    Workspace.objects.filter(pk=row.pk).update(name="other", memory_mb=512)
    assert _version(host) == before


def _version(host: Host) -> object:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text, xmax::text FROM vmbackend_host WHERE id = %s", [host.pk])
        return cursor.fetchone()


@pytest.mark.django_db
def test_a_drift_is_found_logged_counted_and_repaired(api: Caller, caplog: pytest.LogCaptureFixture) -> None:
    right, wrong, empty = make_host("right"), make_host("wrong"), make_host("empty")
    for host in (right, wrong):
        make_workspace(api.account, host=host, memory_mb=512)
    assert promised.prove_promises() == 0
    counted = read_values().get("mvm_host_drifts", {}).get(("repaired",), 0)
    Host.objects.filter(pk=wrong.pk).update(memory_promised_mb=100, machines_running=7)
    Host.objects.filter(pk=empty.pk).update(disk_promised_mb=-5)
    with caplog.at_level(logging.ERROR):
        assert promised.prove_promises() == 2
    assert "wrong differed" in caplog.text
    assert "'memory_promised_mb': -412" in caplog.text
    assert read_values()["mvm_host_drifts"][("repaired",)] == counted + 2
    assert [counters_of(host) for host in (right, wrong, empty)] == [sums_of(host) for host in (right, wrong, empty)]
    assert promised.prove_promises() == 0


@pytest.mark.django_db
def test_the_functions_of_the_database_are_those_of_the_code() -> None:
    """A state that is added to the running pool later needs a migration that makes the functions anew."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT proname, prosrc FROM pg_proc WHERE proname = ANY(%s)", [list(promised._FUNCTIONS)])
        stored = dict(cursor.fetchall())
    assert {name: body in stored[name] for name, body in promised._FUNCTIONS.items()} == dict.fromkeys(stored, True)
    assert len(stored) == len(promised._FUNCTIONS)


@pytest.mark.django_db(transaction=True)
def test_counters_are_the_sums_after_random_operations_at_once(
    new_account: Callable[..., Caller], vmhost: FakeHost
) -> None:
    """Creates, power, sizes, failures and deletions by several threads, with the check of counters in between."""
    vmhost.hold_tasks()
    hosts = [Host.objects.get(), *(make_host(f"host-{number}") for number in range(2))]
    actors = [Actor(new_account(f"account {n}").account, Scope.ACCOUNT, "cred", "label") for n in range(3)]

    def work(number: int) -> None:
        chance, actor = random.Random(number), actors[number % len(actors)]
        for _ in range(25):
            try:
                _act(chance, actor)
            except (DomainError, TransitionLost, Workspace.DoesNotExist):
                continue
        if number == 0:
            assert promised.prove_promises() == 0

    assert run_at_once(6, work) == ["done"] * 6
    assert [counters_of(host) for host in hosts] == [sums_of(host) for host in hosts]
    assert sum(counters_of(host)[2] for host in hosts) > 0
    Workspace.objects.all().delete()
    assert [counters_of(host) for host in hosts] == [(0,) * 5] * 3
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()


SIZES = {"cpu_millis": 100, "memory_mb": 128, "disk_size_mb": 64}


def _act(chance: random.Random, actor: Actor) -> None:
    """One request of an owner, or what vmhost makes of it."""
    rows = list(Workspace.objects.filter(account=actor.account))
    if not rows or chance.random() < 0.2:
        services.workspace_create(actor=actor, new=NewWorkspace(image="localhost/tiny:1", sizes=SIZES))
        return
    row = chance.choice(rows)
    if chance.random() < 0.4:
        chance.choice(REQUESTS)(row)
        return
    with transaction.atomic():
        Operation.objects.filter(workspace=row, finished_at=None).update(state="succeeded", finished_at=row.created_at)
        status = chance.choice(list(Status))
        transition(row, status, applied_memory_mb=chance.choice((128, 256)))


REQUESTS: tuple[Callable[[Workspace], object], ...] = (
    lambda row: power.workspace_start(workspace=row, actor="owner", force=True),
    lambda row: power.workspace_resume(workspace=row, actor="owner"),
    lambda row: power.workspace_restart(workspace=row, actor="owner"),
    lambda row: resources_update(workspace=row, actor="owner", changes={"memory_mb": 256}, apply=True),
    lambda row: services.remove_workspace_row(row),
)
