"""Placement by several transactions at once: no host gets more than it has, nobody waits for ever, and what changes
between the choice and the take is seen.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, ProtectedError

from accounts.actors import Actor
from accounts.scopes import Scope
from common.errors import VMUnavailable
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import run_at_once, wait_until
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.host_states import HostState
from vmbackend.models import Host
from vmbackend.services import host_delete, host_state_set
from workspaces import placement, power, rows
from workspaces.crud import places
from workspaces.crud.services import NewWorkspace, workspace_create
from workspaces.models import Operation, ReleasedAddress, Workspace
from workspaces.quota import Amount
from workspaces.snapshots.forks import NewForks, workspace_fork
from workspaces.states import Status
from workspaces.transitions import transition

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = {"cpu_millis": 100, "memory_mb": 256, "disk_size_mb": 64}
NEW = NewWorkspace(image="localhost/tiny:1", sizes=SIZES)


@pytest.fixture(autouse=True)
def no_machines(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows only; the host of the fixture takes none of them, and a host has exactly the memory of its row."""
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"memory_overcommit": 1.0}))
    monkeypatch.setattr(settings.ENV, "memory_reserve_mb", 0)
    vmhost.hold_tasks()
    Host.objects.update(state=HostState.DRAINING)
    yield
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()
    Workspace.objects.all().delete()


@pytest.fixture
def actors(new_account: Callable[..., Caller]) -> list[Actor]:
    return [Actor(new_account(f"account {n}").account, Scope.ACCOUNT, "cred", "label") for n in range(2)]


def host_for(number: int, name: str, **fields: Any) -> Host:
    """A host with room for so many machines of SIZES."""
    host = make_host(name)
    Host.objects.filter(pk=host.pk).update(memory_mb=number * SIZES["memory_mb"], **fields)
    return Host.objects.get(pk=host.pk)


@contextmanager
def another_transaction(work: Callable[[], object]) -> Iterator[None]:
    """Within it another transaction has done `work`. It commits when somebody waits for it, or at the end."""
    worked, left, failed = threading.Event(), threading.Event(), list[BaseException]()

    def other() -> None:
        try:
            with transaction.atomic():
                work()
                worked.set()
                wait_until(lambda: left.is_set() or waiting_transactions())
        except BaseException as exc:
            failed.append(exc)
        finally:
            worked.set()
            connection.close()

    thread = threading.Thread(target=other)
    thread.start()
    worked.wait(60)
    try:
        yield
    finally:
        left.set()
        thread.join()
    assert failed == []


def waiting_transactions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("order", ["spread", "pack"])
def test_the_last_places_of_hosts_go_to_as_many_creates_as_there_are(
    actors: list[Actor], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(settings.ENV, "placement", order)
    hosts = [host_for(number, f"host-{number}") for number in (1, 1, 1, 2)]
    outcomes = Counter(run_at_once(20, lambda number: workspace_create(actor=actors[number % 2], new=NEW)))
    assert outcomes == {"done": 3, "VMUnavailable": 17}
    for host in Host.objects.filter(pk__in=[host.pk for host in hosts]):
        assert host.memory_promised_mb == host.memory_mb
        assert Workspace.objects.filter(host=host).count() == host.machines_running


def test_creates_at_once_do_not_all_queue_for_the_freest_host(actors: list[Actor]) -> None:
    """A host that another transaction holds is passed by while there is another candidate."""
    first, second = host_for(9, "first"), host_for(8, "second")
    with another_transaction(lambda: Host.objects.select_for_update().get(pk=first.pk)):
        assert workspace_create(actor=actors[0], new=NEW).workspace.host_id == second.pk


def test_a_host_that_is_drained_while_a_create_waits_for_it_takes_nothing(actors: list[Actor]) -> None:
    host = host_for(5, "only")
    drained = another_transaction(lambda: host_state_set(host_id=host.pk, to=HostState.DRAINING))
    with drained, pytest.raises(VMUnavailable, match="No host is available"):
        workspace_create(actor=actors[0], new=NEW)
    assert not Workspace.objects.exists()


def test_a_host_that_is_deleted_while_a_create_waits_for_it_takes_nothing(actors: list[Actor]) -> None:
    host = host_for(5, "only")
    deleted = another_transaction(lambda: host_delete(host_id=host.pk))
    with deleted, pytest.raises(VMUnavailable, match="No host is available"):
        workspace_create(actor=actors[0], new=NEW)


def test_a_host_that_a_create_has_taken_is_not_deleted(actors: list[Actor]) -> None:
    host = host_for(5, "only")
    taken = another_transaction(lambda: workspace_create(actor=actors[0], new=NEW))
    with taken, pytest.raises(ProtectedError):
        host_delete(host_id=host.pk)
    assert Workspace.objects.get().host_id == host.pk


def test_the_last_memory_of_a_host_is_woken_into_or_created_into(actors: list[Actor]) -> None:
    """Starts, wakes and forks take room the same way as creates."""
    host = host_for(2, "only")
    asleep = make_workspace(actors[0].account, host=host, ip="10.200.1.1", status=Status.SLEEPING, memory_mb=256)
    off = make_workspace(actors[1].account, host=host, ip="10.200.1.2", status=Status.STOPPED, memory_mb=256)
    works: list[Callable[[], object]] = [
        lambda: power.workspace_wake(workspace=Workspace.objects.get(pk=asleep.pk), actor="owner"),
        lambda: power.workspace_start(workspace=Workspace.objects.get(pk=off.pk), actor="owner"),
        lambda: workspace_create(actor=actors[0], new=NEW),
        lambda: workspace_create(actor=actors[1], new=NEW),
        lambda: workspace_fork(actor=actors[1], workspace=Workspace.objects.get(pk=off.pk), new=NewForks(count=2)),
    ]
    outcomes = run_at_once(len(works), lambda number: works[number]())
    host.refresh_from_db()
    assert host.memory_promised_mb == 512, outcomes
    assert set(outcomes) <= {"done", "VMUnavailable", "InvalidState", "OperationInProgress"}


def test_a_start_and_the_end_of_the_same_machine_do_not_wait_for_each_other(actors: list[Actor]) -> None:
    """vmhost has the workspace's row and needs its host's; an owner's start needs both, in the same order."""
    host = host_for(5, "only")
    row = make_workspace(actors[0].account, host=host, ip="10.200.1.1", status=Status.STOPPED, memory_mb=256)

    def reconcile() -> None:
        with transaction.atomic():
            rows.lock_row(row)
            wait_until(lambda: waiting_transactions() >= 1)
            transition(Workspace.objects.get(pk=row.pk), Status.RUNNING)

    def start() -> None:
        power.workspace_start(workspace=Workspace.objects.get(pk=row.pk), actor="owner")

    assert run_at_once(2, lambda number: (reconcile, start)[number]()) == ["done", "done"]
    host.refresh_from_db()
    assert (host.memory_promised_mb, host.machines_running) == (256, 1)


def test_opposite_moves_at_once_do_not_wait_for_each_other(actors: list[Actor]) -> None:
    hosts = [host_for(50, f"host-{number}") for number in range(2)]
    moved = [
        make_workspace(actors[0].account, host=hosts[number % 2], ip=f"10.200.1.{number}", memory_mb=256)
        for number in range(16)
    ]

    def move(number: int) -> None:
        target = hosts[1 - number % 2]
        Workspace.objects.filter(pk=moved[number].pk).update(host=target, ip=f"10.200.2.{number}", epoch=F("epoch") + 1)

    assert run_at_once(16, move) == ["done"] * 16
    assert [Host.objects.get(pk=host.pk).machines_running for host in hosts] == [8, 8]
    assert ReleasedAddress.objects.count() == 16


def test_creations_tried_again_on_each_others_hosts_do_not_wait_for_each_other(actors: list[Actor]) -> None:
    hosts = [host_for(50, f"host-{number}") for number in range(2)]
    failed = [
        make_workspace(actors[0].account, host=host, ip="10.200.1.1", status=Status.FAILED, started_at=None)
        for host in hosts
    ]
    both = threading.Barrier(2)

    def try_again(number: int) -> None:
        with transaction.atomic():
            target = placement.reserve_on_host(hosts[1 - number], Amount(**SIZES))
            both.wait(30)
            Workspace.objects.filter(pk=failed[number].pk).update(host=target, ip="10.200.1.2", status=Status.QUEUED)

    assert run_at_once(2, try_again) == ["done", "done"]
    assert [Host.objects.get(pk=host.pk).machines_running for host in hosts] == [1, 1]


def test_creates_at_once_get_addresses_of_their_own(actors: list[Actor]) -> None:
    host = host_for(50, "only", subnet="10.9.9.0/29")
    outcomes = Counter(run_at_once(8, lambda number: workspace_create(actor=actors[number % 2], new=NEW)))
    assert outcomes == {"done": 5, "VMUnavailable": 3}
    addresses = Workspace.objects.filter(host=host).values_list("ip", flat=True)
    assert sorted(map(str, addresses)) == [f"10.9.9.{number}" for number in range(2, 7)]


def test_an_address_that_another_transaction_has_taken_is_given_up(
    actors: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_for(50, "only")
    taken = make_workspace(actors[1].account, host=host, ip="10.200.1.1")
    chosen, choose = ["10.200.1.1"], placement.free_address
    monkeypatch.setattr(places, "free_address", lambda host: chosen.pop() if chosen else choose(host))
    made = workspace_create(actor=actors[0], new=NEW).workspace
    assert (made.host_id, str(made.ip) != str(taken.ip), chosen) == (host.pk, True, [])
    assert Operation.objects.count() == 1
    host.refresh_from_db()
    assert host.machines_running == 2


def test_many_creates_on_few_hosts_leave_none_over_its_size(actors: list[Actor]) -> None:
    for number in range(4):
        host_for(3, f"host-{number}")
    outcomes = Counter(run_at_once(16, lambda number: workspace_create(actor=actors[number % 2], new=NEW)))
    assert outcomes == {"done": 12, "VMUnavailable": 4}
    assert {host.machines_running for host in Host.objects.filter(state=HostState.ACTIVE)} == {3}
    assert placement.has_room(Amount(**SIZES)) is False
