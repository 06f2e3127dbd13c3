"""A machine that a create has claimed becomes the workspace, or another one is made under the same id and address."""

from __future__ import annotations

import pytest

from accounts.actors import Actor
from accounts.scopes import Scope
from tests.callers import Caller
from tests.fakehost import Died
from tests.workspaces.pool.conftest import IMAGE, SIZES, Pool
from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, BackendUnavailable, GuestUnreachable
from workspaces.crud.services import NewWorkspace, workspace_create
from workspaces.host import engine, faults
from workspaces.host.metering.sampler import Sampler
from workspaces.models import MeterRecord, Operation, Usage, Workspace
from workspaces.models.operation import OperationKind, OperationState
from workspaces.warm_machines import shape_of

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = [name for name, _ in engine.KINDS[OperationKind.CREATE].steps]


@pytest.fixture
def actor(api: Caller) -> Actor:
    return Actor(api.account, Scope.ACCOUNT, "cred", "label")


def create(actor: Actor) -> Workspace:
    return workspace_create(actor=actor, new=NewWorkspace(image=IMAGE, sizes=SIZES)).workspace


def ended_well(pool: Pool, made: Workspace, ip: str | None) -> None:
    """The workspace runs under the id and address that it got, and nothing else is on the host."""
    made.refresh_from_db()
    assert (made.status, made.ready, made.ip) == ("running", True, ip)
    assert pool.host.driver.state(made.pk) is MachineState.RUNNING
    assert pool.host.driver.definition(made.pk)["ip"] == ip
    assert pool.host.driver.policy_of(made.pk).allow_internet
    assert set(pool.host.driver.inventory().ids()) == {made.pk}
    assert Operation.objects.get().state == OperationState.SUCCEEDED


@pytest.mark.parametrize("error", [GuestUnreachable("It is silent."), BackendUnavailable("It is gone.")])
@pytest.mark.parametrize("point", ["assign", "assign:half"])
def test_a_machine_that_does_not_take_its_owner_is_replaced(
    actor: Actor, pool: Pool, point: str, error: BackendError
) -> None:
    [ready] = pool.fill()
    pool.host.driver.fail_next(point, error)
    made = create(actor)
    ip = made.ip
    pool.host.settle()
    assert made.pk == ready
    ended_well(pool, made, ip)
    assert (made.started_from, Operation.objects.get().attempt) == ("boot", 1)


def test_machines_that_wait_beside_one_that_is_silent_are_made_anew(actor: Actor, pool: Pool) -> None:
    other = shape_of("localhost/other:1", **SIZES)
    [kept] = pool.fill(1, other)
    pool.ask(3)
    for _ in range(3):
        pool.keeper.run_once()
    waiting = set(pool.ids()) - {kept}
    assert len(waiting) == 3
    pool.host.driver.fail_next("assign", GuestUnreachable("It is silent."))
    silent = create(actor)
    pool.host.settle()
    assert pool.ids() == [kept], "no other create takes one of them"
    following = create(actor)
    assert following.pk not in waiting
    pool.host.settle()
    for _ in range(3):
        pool.keeper.run_once()
    assert len(pool.ids()) == 4
    assert not waiting & (set(pool.host.driver.inventory().ids()) - {silent.pk})


@pytest.mark.parametrize("happens", ["kill", "resume", "lose_machine", "delete"])
def test_a_machine_that_is_not_as_the_pool_left_it_is_replaced(actor: Actor, pool: Pool, happens: str) -> None:
    [ready] = pool.fill()
    getattr(pool.host.driver, happens)(ready)
    made = create(actor)
    ip = made.ip
    pool.host.settle()
    ended_well(pool, made, ip)
    assert made.started_from == "boot"


@pytest.mark.parametrize("step", STEPS)
def test_vmhost_dies_at_a_step(actor: Actor, pool: Pool, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.fill()
    died: list[str] = []

    def point(kind: str, name: str) -> None:
        if name == step and not died:
            died.append(name)
            raise Died

    monkeypatch.setattr(faults, "fault_point", point)
    made = create(actor)
    ip = made.ip
    pool.host.settle_across_deaths()
    assert died
    ended_well(pool, made, ip)


def test_vmhost_dies_in_the_middle_of_an_assignment(actor: Actor, pool: Pool) -> None:
    pool.fill()
    driver = pool.host.driver

    def dies(at: str) -> None:
        if at == "assign:half":
            driver.crash_hook = None
            raise pool.host.begin_death()

    driver.crash_hook = dies
    made = create(actor)
    ip = made.ip
    pool.host.settle_across_deaths()
    ended_well(pool, made, ip)
    assert made.started_from == "boot"


def test_a_delete_of_a_workspace_that_is_being_assigned_leaves_nothing(api: Caller, actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    pool.host.hold_tasks()
    create(actor)
    api.delete(f"/workspace/{ready}")
    pool.host.release_tasks()
    pool.host.settle()
    assert not Workspace.objects.exists()
    assert not pool.host.driver.inventory().ids()


def test_usage_counts_from_the_claim(actor: Actor, pool: Pool) -> None:
    used = {"cpu_time_ns": 5_000_000_000, "disk_read_bytes": 7 << 20, "net_rx_bytes": 1 << 20}
    pool.ask()
    pause = pool.host.driver.pause

    def used_first(machine_id: str) -> None:
        pool.host.driver.add_usage(machine_id, **used)
        pause(machine_id)

    pool.host.driver.pause = used_first  # type: ignore[method-assign]
    pool.keeper.run_once()
    made = create(actor)
    pool.host.settle()
    pool.host.driver.add_usage(made.pk, cpu_time_ns=3)
    sampler = Sampler(pool.host.runtime.host_id, pool.host.driver)
    sampler.writer.start()
    sampler.run_once()
    sampler.flush(everything=True)
    sampler.writer.stop()
    row = Usage.objects.get()
    assert (row.total_cpu_time_ns, row.total_disk_read, row.total_net_rx) == (3, 0, 0)
    assert row.cpu_time_ns == used["cpu_time_ns"] + 3
    assert sum(MeterRecord.objects.values_list("cpu_time_ns", flat=True)) == 3


def test_usage_of_a_machine_that_was_replaced_counts_in_full(actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    pool.host.driver.kill(ready)
    made = create(actor)
    pool.host.settle()
    pool.host.driver.add_usage(made.pk, cpu_time_ns=9)
    sampler = Sampler(pool.host.runtime.host_id, pool.host.driver)
    sampler.writer.start()
    sampler.run_once()
    sampler.flush(everything=True)
    sampler.writer.stop()
    assert Usage.objects.get().total_cpu_time_ns == 9
