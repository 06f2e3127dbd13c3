"""Limits that many creates and upgrades meet at once, also where some die in the middle: what was refused or
failed holds nothing.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from accounts.actors import Actor
from accounts.models import Account, Plan
from accounts.scopes import Scope
from common.request_origin import NO_ORIGIN
from namespaces.models import Namespace
from namespaces.services import namespace_update
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import run_at_once
from tests.workspaces.charging.measuring import dying_at
from tests.workspaces.rows import make_workspace
from workspaces.crud.services import NewWorkspace, workspace_create
from workspaces.models import Activity, Operation, Workspace
from workspaces.quota import account_usage
from workspaces.resources.services import resources_update
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = {"cpu_millis": 100, "memory_mb": 128, "disk_size_mb": 64}
AT_ONCE = 60


class Died(Exception):
    """The process that carried the request out is gone."""


@pytest.fixture
def actor(api: Caller, vmhost: FakeHost) -> Actor:
    vmhost.hold_tasks()
    Namespace.objects.create(account=api.account, name="Team", slug="team", resource_limits={"max_workspaces": 10})
    return Actor(api.account, Scope.ACCOUNT, "cred", "label")


def create(actor: Actor) -> None:
    workspace_create(actor=actor, new=NewWorkspace(namespace="team", sizes=SIZES))


def test_creates_that_die_at_any_statement_hold_nothing(actor: Actor) -> None:
    def work(number: int) -> None:
        with dying_at(number // 2 if number % 2 else 10_000) as death:
            create(actor)
        if death.happened:
            raise Died

    outcomes = Counter(run_at_once(AT_ONCE, work))
    made = outcomes["done"]
    assert set(outcomes) == {"done", "NamespaceLimitReached", "Died()"}
    assert made == Workspace.objects.count() == Operation.objects.count() == 10
    assert Activity.objects.filter(action="created").count() == 10
    assert Account.objects.get(pk=actor.account.pk).workspace_count == 10
    assert account_usage(actor.account).owned.memory_mb == 10 * 128
    Workspace.objects.all().delete()


def test_a_create_that_dies_leaves_its_place_to_another(actor: Actor) -> None:
    for statement in range(40):
        with dying_at(statement) as death:
            create(actor)
        if not death.happened:
            break
        assert (Workspace.objects.count(), Operation.objects.count()) == (0, 0)
    assert not death.happened, "every statement was reached"
    assert run_at_once(20, lambda _: create(actor)).count("done") == 9
    Workspace.objects.all().delete()


@pytest.mark.parametrize("dies", [False, True])
def test_of_upgrades_at_once_as_many_succeed_as_the_pool_has_room_for(api: Caller, dies: bool) -> None:
    rows = [make_workspace(api.account, status=Status.STOPPED) for _ in range(30)]
    Plan.objects.filter(pk=api.account.plan_id).update(pool_memory_mb=30 * 128 + 7 * 1000)

    def work(number: int) -> None:
        with dying_at(number // 3 if dies and number % 3 == 0 else 10_000) as death:
            row = Workspace.objects.get(pk=rows[number].pk)
            resources_update(workspace=row, actor="owner", changes={"memory_mb": 1128}, apply=False)
        if death.happened:
            raise Died

    outcomes = run_at_once(30, work)
    assert set(outcomes) <= {"done", "PoolLimitReached", "Died()"}
    assert outcomes.count("done") == Workspace.objects.filter(memory_mb=1128).count() == 7
    assert account_usage(api.account).owned.memory_mb == 30 * 128 + 7 * 1000


def test_upgrades_and_creates_at_once_share_the_pool(actor: Actor) -> None:
    Namespace.objects.update(resource_limits={})
    rows = [make_workspace(actor.account, status=Status.STOPPED) for _ in range(15)]
    Plan.objects.filter(pk=actor.account.plan_id).update(pool_cpus=Decimal("1.5") + Decimal("0.6"))

    def work(number: int) -> None:
        if number % 2:
            create(actor)
        else:
            row = Workspace.objects.get(pk=rows[number // 2].pk)
            resources_update(workspace=row, actor="owner", changes={"cpu_millis": 200}, apply=False)

    outcomes = run_at_once(30, work)
    assert Counter(outcomes) == {"done": 6, "PoolLimitReached": 24}
    assert account_usage(actor.account).owned.cpu_millis == 2100
    Workspace.objects.all().delete()


def test_no_upgrade_passes_a_cap_that_was_lowered_before_it(actor: Actor) -> None:
    """Each upgrade is as large as the cap of its moment allows: one that comes after the change meets the new cap."""
    team = Namespace.objects.get(slug="team")
    rows = [make_workspace(actor.account, namespace=team, status=Status.STOPPED) for _ in range(20)]

    def work(number: int) -> None:
        if number == 10:
            limits = {"resource_limits": {"max_ram_mb": 256}}
            namespace_update(namespace=team, changes=limits, actor="owner", origin=NO_ORIGIN)
        else:
            row = Workspace.objects.select_related("namespace", "account__plan").get(pk=rows[number].pk)
            resources_update(workspace=row, actor="owner", changes={"memory_mb": 512}, apply=False)

    outcomes = run_at_once(20, work)
    assert set(outcomes) <= {"done", "NamespaceLimitReached"}
    refused = [number for number, outcome in enumerate(outcomes) if outcome != "done"]
    assert Workspace.objects.filter(memory_mb=512).count() == 19 - len(refused)
    again = run_at_once(20, lambda number: number == 10 or work(number))
    assert [again[number] for number in refused] == ["NamespaceLimitReached"] * len(refused)
