"""The keeper: how many machines there are, which go, and what a death of vmhost leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.utils import timezone

from accounts.actors import Actor
from accounts.scopes import Scope
from tests.callers import Caller
from tests.fakehost import Died
from tests.threads import wait_until
from tests.workspaces.pool.conftest import IMAGE, SHAPE, SIZES, Pool
from vmbackend.errors import BackendUnavailable, CapacityExceeded, GuestUnreachable
from vmbackend.images.types import Image
from vmbackend.models import Host
from workspaces import placement
from workspaces.crud.services import NewWorkspace, workspace_create
from workspaces.host import process
from workspaces.host.pool import keeper
from workspaces.host.pool.demand import WINDOW, Demand, share_pool
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host_columns import pool_text
from workspaces.models import WarmMachine, WarmRequest, Workspace
from workspaces.models.warm_machine import WarmState
from workspaces.selectors import digests_in_use
from workspaces.warm_machines import PoolShape

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def actor(api: Caller) -> Actor:
    return Actor(api.account, Scope.ACCOUNT, "cred", "label")


def create(actor: Actor, memory_mb: int = 512) -> Workspace:
    sizes = {**SIZES, "memory_mb": memory_mb}
    return workspace_create(actor=actor, new=NewWorkspace(image=IMAGE, sizes=sizes)).workspace


def machines(pool: Pool) -> set[str]:
    return set(pool.host.driver.inventory().ids())


def test_without_demand_there_is_nothing(pool: Pool) -> None:
    pool.keeper.run_once()
    assert not WarmMachine.objects.exists()
    assert not machines(pool)


def test_a_create_that_boots_makes_demand_and_the_next_is_served(api: Caller, actor: Actor, pool: Pool) -> None:
    create(actor)
    pool.host.settle()
    pool.keeper.run_once()
    [ready] = pool.ids()
    assert create(actor).pk == ready
    pool.host.settle()
    pool.keeper.run_once()
    [share] = Host.objects.get().pool
    assert share | SHAPE._asdict() == share
    assert (share["wanted"], share["ready"], share["claimed"], share["missed"]) == (2, 1, 1, 1)
    shown = "localhost/tiny:1, 1 CPUs, 512 MiB: 2 wanted, 1 ready; in ten minutes 1 claimed, 1 missed"
    assert pool_text(share) == shown


def test_shares_are_by_demand_within_memory_and_number() -> None:
    small, large = PoolShape("a", 1000, 512, 512), PoolShape("b", 1000, 2048, 512)
    demand = {small: Demand(5, 3), large: Demand(0, 2)}
    assert share_pool(demand, 4096, 8) == {small: 4, large: 1}
    assert share_pool(demand, 65536, 5) == {small: 4, large: 1}
    assert share_pool(demand, 65536, 20) == {small: 8, large: 2}
    assert share_pool(demand, 511, 8) == {small: 0, large: 0}
    assert share_pool({}, 4096, 8) == {}


def fresh(pool: Pool) -> None:
    """Nothing has changed."""


def demand_is_gone(pool: Pool) -> None:
    WarmRequest.objects.update(at=timezone.now() - timedelta(minutes=11))


def is_old(pool: Pool) -> None:
    WarmMachine.objects.update(made_at=timezone.now() - keeper.LONGEST_LIFE)


def another_kit(pool: Pool) -> None:
    WarmMachine.objects.update(kit="the one before")


def tag_moved(pool: Pool) -> None:
    digest = "sha256:" + "7" * 64
    moved = Image(
        digest, pool.host.images.ensure(IMAGE, progress=lambda *_: None, deadline=0).rootfs, 0, pool.host.images.config
    )
    pool.host.images._known[digest] = moved
    pool.host.images.ensure = lambda *_, **__: moved  # type: ignore[method-assign]
    pool.keeper._digests._known.clear()  # a minute later


def is_drained(pool: Pool) -> None:
    Host.objects.update(state="draining")


def is_killed(pool: Pool) -> None:
    pool.host.driver.kill(pool.ids()[0])


def runs(pool: Pool) -> None:
    pool.host.driver.resume(pool.ids()[0])


def disk_is_short(pool: Pool) -> None:
    pool.host.runtime.disk_guard._short = True


def host_was_booted(pool: Pool) -> None:
    pool.host.driver.lose_machine(pool.ids()[0])


@pytest.mark.parametrize(
    ("happens", "follows"),
    [
        (fresh, 1), (demand_is_gone, 0), (is_old, 1), (another_kit, 1), (tag_moved, 1), (is_drained, 0), (is_killed, 1),
        (runs, 1), (disk_is_short, 0), (host_was_booted, 1),
    ],
)  # fmt: skip
def test_a_machine_that_does_not_fit_any_more_is_removed(
    pool: Pool, happens: Callable[[Pool], None], follows: int
) -> None:
    [ready] = pool.fill()
    happens(pool)
    pool.keeper.run_once()
    assert (ready in machines(pool)) is (happens is fresh)
    assert len(pool.ids()) == follows
    assert machines(pool) == set(pool.ids())


def test_while_a_tag_cannot_be_resolved_none_is_made(pool: Pool) -> None:
    pool.ask(1, PoolShape("localhost/unreachable:1", *SHAPE[1:]))
    pool.keeper.run_once()
    assert not WarmMachine.objects.exists()


def test_a_registry_that_is_slow_holds_up_no_other_image(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, ensure, answers = PoolShape("localhost/slow:1", *SHAPE[1:]), pool.host.images.ensure, threading.Event()
    asked: list[str] = []

    def slowly(reference: str, **options: Any) -> Image:
        asked.append(reference)
        if reference == slow.image:
            answers.wait(20)
        return ensure(reference, **options)

    monkeypatch.setattr(pool.host.images, "ensure", slowly)
    pool.ask(2, slow)
    pool.ask()
    began = time.monotonic()
    for _ in range(2):
        pool.keeper.run_once()
    assert time.monotonic() - began < 15
    assert [machine.image for machine in WarmMachine.objects.all()] == [SHAPE.image]
    assert asked.count(slow.image) == 1, "it is not asked again before it has answered"
    answers.set()
    wait_until(lambda: not any(thread.is_alive() for thread in pool.keeper._digests._asking.values()))
    pool.keeper.run_once()
    assert {machine.image for machine in WarmMachine.objects.all()} == {SHAPE.image, slow.image}


@pytest.mark.parametrize("method", ["prepare", "start", "wait_ready", "pause", "samples"])
def test_a_machine_that_cannot_be_made_leaves_nothing_and_is_not_tried_at_once(pool: Pool, method: str) -> None:
    pool.host.driver.fail_next(method, BackendUnavailable("No."))
    pool.ask()
    pool.keeper.run_once()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())
    pool.keeper.run_once()
    assert not WarmMachine.objects.exists()


@pytest.mark.parametrize("method", ["prepare", "pause", "samples"])
def test_a_round_that_fails_in_the_middle_leaves_nothing_and_is_not_tried_at_once(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fails(*_: object) -> None:
        raise OperationalError("The database is away.")

    pool.ask()
    with monkeypatch.context() as away:
        away.setattr(pool.host.driver, method, fails)
        with pytest.raises(OperationalError):
            pool.keeper.run_once()
    pool.keeper.run_once()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())
    pool.keeper._not_before.clear()  # a minute later
    pool.keeper.run_once()
    assert machines(pool) == set(pool.ids()) != set()


@pytest.mark.parametrize("point", ["prepare:disk", "prepare:network", "start:before_run", "delete:destroyed"])
def test_what_a_death_leaves_is_removed_by_the_next_process(pool: Pool, point: str) -> None:
    if point == "delete:destroyed":
        pool.fill()
        demand_is_gone(pool)
    else:
        pool.ask()
    driver = pool.host.driver

    def dies(at: str) -> None:
        if at == point:
            raise pool.host.begin_death()

    driver.crash_hook = dies
    with pytest.raises(Died):
        pool.keeper.run_once()
    driver.crash_hook = None
    driver.__dict__.pop("_remove", None)
    assert WarmMachine.objects.count() == 1
    pool.host.restart()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())


def test_ready_machines_outlive_vmhost_and_are_no_orphans(actor: Actor, pool: Pool) -> None:
    [ready] = pool.fill()
    pool.host.restart()
    reconcile_rows_and_machines(pool.host.runtime)
    assert (pool.ids(), machines(pool)) == ([ready], {ready})
    assert create(actor).pk == ready
    pool.host.settle()
    assert Workspace.objects.get().started_from == "pool"


@pytest.mark.parametrize("happens", [another_kit, is_old])
def test_a_machine_of_before_an_upgrade_is_gone_once_vmhost_has_started(
    pool: Pool, happens: Callable[[Pool], None]
) -> None:
    pool.fill()
    happens(pool)
    pool.host.restart()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())


def test_their_images_are_not_evicted_and_their_addresses_not_given(actor: Actor, pool: Pool) -> None:
    pool.fill()
    machine = WarmMachine.objects.get()
    assert machine.image_digest in digests_in_use(pool.host.runtime.host_id)
    assert machine.ip in placement._taken_addresses(machine.host)


def test_memory_is_given_back_before_a_create_is_refused(actor: Actor, pool: Pool) -> None:
    pool.fill(3)
    Host.objects.update(memory_mb=settings.ENV.memory_reserve_mb + 2048)
    create(actor, memory_mb=1024)
    assert len(pool.ids()) == 2, "there is room for the other two"
    pool.host.settle()
    create(actor, memory_mb=1024)
    assert pool.ids() == []
    pool.host.settle()
    pool.keeper.run_once()
    assert WarmMachine.objects.count() == 0
    assert len(machines(pool)) == 2


def test_a_start_for_which_the_host_has_no_memory_gets_it_from_the_pool(actor: Actor, pool: Pool) -> None:
    pool.fill(2)
    pool.host.driver.fail_next("start", CapacityExceeded("The host has not enough free memory."))
    made = create(actor, memory_mb=640)
    pool.host.settle()
    made.refresh_from_db()
    assert (made.status, list(WarmMachine.objects.all())) == ("running", [])


def test_a_machine_that_is_retired_while_it_is_made_is_removed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.ask()
    pause = pool.host.driver.pause

    def retired_first(machine_id: str) -> None:
        WarmMachine.objects.update(state=WarmState.RETIRING)
        pause(machine_id)

    monkeypatch.setattr(pool.host.driver, "pause", retired_first)
    pool.keeper.run_once()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())


def test_old_requests_are_removed(pool: Pool) -> None:
    pool.ask(2)
    WarmRequest.objects.filter(pk=WarmRequest.objects.first().pk).update(at=timezone.now() - WINDOW)  # type: ignore[union-attr]
    reconcile_rows_and_machines(pool.host.runtime)
    assert WarmRequest.objects.count() == 1


def test_with_the_pool_off_a_host_removes_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.fill(2)
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pool_memory_mb": 0}))
    pool.host.restart()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())


def test_a_busy_host_makes_none_until_it_has_been_busy_for_long(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.keeper, "_is_quiet", lambda: False)
    pool.ask()
    pool.keeper.run_once()
    assert not WarmMachine.objects.exists()
    monkeypatch.setattr(keeper, "BUSY_SECONDS", -1.0)
    pool.keeper.run_once()
    assert len(pool.ids()) == 1


def test_a_host_that_is_shut_down_with_its_machines_keeps_none(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.fill()
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"stop_vms_on_down": True}))
    process.close_host()
    assert not WarmMachine.objects.exists()
    pool.host.start()
    assert machines(pool) == set()


def test_a_guest_that_runs_no_command_is_not_in_the_pool(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(*_: object) -> None:
        raise GuestUnreachable("It does not answer.")

    monkeypatch.setattr("workspaces.host.pool.making._run_command", unreachable)
    pool.ask()
    pool.keeper.run_once()
    assert (list(WarmMachine.objects.all()), machines(pool)) == ([], set())
