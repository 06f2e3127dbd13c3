"""A create takes a machine that is ready: one machine has one owner, whoever else wanted it."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import transaction
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Plan
from accounts.scopes import Scope
from tests.callers import Caller
from tests.threads import run_at_once
from tests.workspaces.charging.measuring import dying_at
from tests.workspaces.pool.conftest import IMAGE, SIZES, Pool
from tests.workspaces.rows import renew_leases
from vmbackend.driver import MachineState
from vmbackend.models import Host
from workspaces import warm_machines
from workspaces.crud.services import NewWorkspace, workspace_create
from workspaces.models import Operation, Usage, WarmMachine, Workspace
from workspaces.quota import account_usage
from workspaces.warm_machines import DIGEST_FRESH_FOR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def actor(api: Caller) -> Actor:
    return Actor(api.account, Scope.ACCOUNT, "cred", "label")


def create(actor: Actor) -> Workspace:
    return workspace_create(actor=actor, new=NewWorkspace(image=IMAGE, sizes=SIZES)).workspace


def test_a_create_gets_the_machine_with_its_id_and_address(api: Caller, pool: Pool, tiny: dict[str, object]) -> None:
    [ready] = pool.fill()
    machine = WarmMachine.objects.get()
    sent = {**tiny, "env": {"A": "b"}, "ssh_keys": [], "slug": "mine", "cmd": ["sleep", "9"]}
    made = api.post("/workspace", sent).json()["workspace"]
    assert (made["id"], made["started_from"], made["info"]["status"]) == (ready, "pool", "running")
    row = Workspace.objects.get()
    assert (row.ip, row.ssh_host_key, row.image_digest) == (machine.ip, machine.ssh_host_key, machine.image_digest)
    assert not WarmMachine.objects.exists()
    given = pool.host.driver.definition(ready)
    assert given["network"]["allow_internet"] is True  # type: ignore[index]
    assert pool.host.driver.resync_count(ready) == 1


def test_machines_are_ready_paused_and_reach_nothing_until_then(pool: Pool) -> None:
    [ready] = pool.fill()
    assert pool.host.driver.state(ready) is MachineState.PAUSED
    assert not pool.host.driver.policy_of(ready).reaches_out


@pytest.mark.parametrize(
    "other",
    [
        {"image": "localhost/other:1"},
        {"config": {"memory_mb": 640, "disk_size_mb": 512}},
        {"config": {"memory_mb": 512, "disk_size_mb": 640}},
        {"config": {"memory_mb": 512, "disk_size_mb": 512, "cpus": 2}},
    ],
)
def test_another_image_or_size_boots(
    api: Caller, pool: Pool, tiny: dict[str, object], other: dict[str, object]
) -> None:
    [ready] = pool.fill()
    made = api.post("/workspace", {**tiny, **other}).json()["workspace"]
    assert made["id"] != ready
    assert (made["started_from"], pool.ids()) == ("boot", [ready])


def test_a_machine_that_is_not_to_be_started_is_made(actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    made = workspace_create(actor=actor, new=NewWorkspace(image=IMAGE, sizes=SIZES, start=False)).workspace
    assert made.pk != ready
    pool.host.settle()


@pytest.mark.parametrize("machines", [1, 3])
def test_creates_at_once_get_a_machine_each_or_boot(actor: Actor, pool: Pool, machines: int) -> None:
    ready = set(pool.fill(machines))
    pool.host.hold_tasks()
    assert run_at_once(6, lambda _: create(actor)) == ["done"] * 6
    made = set(Workspace.objects.values_list("pk", flat=True))
    assert len(made) == 6
    assert ready <= made
    assert len(set(Workspace.objects.values_list("ip", flat=True))) == 6
    assert not WarmMachine.objects.exists()
    pool.host.release_tasks()
    pool.host.settle()
    assert Counter(Workspace.objects.values_list("started_from", flat=True)) == {"pool": machines, "boot": 6 - machines}


def test_of_a_claim_and_a_retirement_at_once_one_wins(actor: Actor, pool: Pool) -> None:
    for _ in range(8):
        [ready] = pool.fill()
        retired: list[bool] = []

        def work(number: int, ready: str = ready, retired: list[bool] = retired) -> None:
            create(actor) if number else retired.append(warm_machines.retire_machine(ready))

        assert run_at_once(2, work) == ["done"] * 2
        assert Workspace.objects.filter(pk=ready).exists() is not retired[0]
        pool.host.settle()
        pool.keeper.empty_pool()
        assert pool.host.driver.state(ready) is (MachineState.ABSENT if retired[0] else MachineState.RUNNING)
        with transaction.atomic():
            list(Workspace.objects.select_for_update())  # no sample of their usage comes from here on
            Operation.objects.all().delete()
            Usage.objects.all().delete()
            Workspace.objects.all().delete()


def test_a_create_that_dies_at_any_statement_leaves_the_machine_to_another(actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    pool.host.hold_tasks()
    for statement in range(60):
        with dying_at(statement) as death:
            create(actor)
        if not death.happened:
            break
        assert (Workspace.objects.count(), pool.ids()) == (0, [ready])
    assert not death.happened, "every statement was reached"
    assert (Workspace.objects.get().pk, pool.ids()) == (ready, [])


def test_machines_of_the_pool_are_in_no_quota_and_claimed_ones_are(actor: Actor, pool: Pool) -> None:
    pool.fill(3)
    assert account_usage(actor.account).owned.memory_mb == 0
    Plan.objects.update(running_memory_mb=512)
    create(actor)
    assert account_usage(actor.account).owned.memory_mb == 512
    assert run_at_once(1, lambda _: create(actor)) == ["RunningPoolReached"]
    assert len(pool.ids()) == 2, "a create that is refused leaves the machine in the pool"
    pool.host.settle()


def test_no_machine_is_taken_from_a_host_that_is_drained_or_silent(actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    Host.objects.create(name="other", subnet="10.201.0.0/20", memory_mb=65536, disk_mb=1 << 20, disk_free_mb=1 << 20)
    renew_leases(name="other")
    for columns in ({"state": "draining"}, {"state": "active", "problem": "It does not answer."}):
        Host.objects.filter(name="local").update(**columns)
        assert create(actor).host.name == "other"
    assert pool.ids() == [ready]


def test_a_digest_that_was_not_looked_at_lately_is_not_the_tags(actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    WarmMachine.objects.update(checked_at=timezone.now() - DIGEST_FRESH_FOR)
    assert create(actor).pk != ready
    pool.host.settle()
