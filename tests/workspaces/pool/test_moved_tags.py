"""A tag that moves while machines of its old digest wait: no create gets one once the tag was resolved anew."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.threads import wait_until
from tests.workspaces.pool.conftest import IMAGE, Pool
from workspaces.host.pool import keeper
from workspaces.models import WarmMachine, Workspace
from workspaces.warm_machines import DIGEST_FRESH_FOR

pytestmark = pytest.mark.django_db(transaction=True)

MOVED = "sha256:" + "7" * 64


@pytest.fixture
def move_tag(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that moves the pool's tag at the registry, of which the keeper knows nothing yet."""
    ensure = pool.host.images.ensure

    def moved(reference: str, **options: Any) -> Any:
        return replace(ensure(reference, **options), digest=MOVED)

    def move() -> None:
        pool.host.images._known[MOVED] = moved(IMAGE, progress=lambda *_: None, deadline=0)
        monkeypatch.setattr(pool.host.images, "ensure", moved)

    return move


def create(api: Caller, body: dict[str, object]) -> Workspace:
    answer = api.post("/workspace", body)
    assert answer.status_code == 201, answer.json()
    return Workspace.objects.get(pk=answer.json()["workspace"]["id"])


def larger(tiny: dict[str, object]) -> dict[str, object]:
    """Return the body of a create that no machine of the pool serves."""
    return {**tiny, "config": {"memory_mb": 640, "disk_size_mb": 512}}


def test_a_create_that_resolves_it_retires_the_old_ones(
    api: Caller, pool: Pool, move_tag: Any, tiny: dict[str, object]
) -> None:
    old = set(pool.fill(2))
    move_tag()
    assert create(api, larger(tiny)).image_digest == MOVED
    made = create(api, tiny)
    assert (made.image_digest, made.started_from) == (MOVED, "boot")
    pool.keeper.run_once()
    [ready] = pool.ids()
    assert ready not in old
    assert create(api, tiny).pk == ready
    assert Workspace.objects.get(pk=ready).image_digest == MOVED


def test_one_that_was_being_made_is_not_given_to_anybody(
    api: Caller, pool: Pool, move_tag: Any, tiny: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = pool.host.driver.pause

    def moves_first(machine_id: str) -> None:
        move_tag()
        create(api, larger(tiny))
        pause(machine_id)

    monkeypatch.setattr(pool.host.driver, "pause", moves_first)
    pool.ask()
    pool.keeper.run_once()
    assert pool.ids() == []
    assert create(api, tiny).image_digest == MOVED


def test_one_that_was_reserved_just_before_is_not_made(
    api: Caller, pool: Pool, move_tag: Any, tiny: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = keeper.reserve_machine

    def resolved_first(*args: Any, **options: Any) -> Any:
        move_tag()
        create(api, larger(tiny))
        return reserve(*args, **options)

    monkeypatch.setattr(keeper, "reserve_machine", resolved_first)
    pool.ask()
    pool.keeper.run_once()
    assert not WarmMachine.objects.exists()


def test_an_answer_that_was_asked_for_before_does_not_bring_the_old_one_back(
    api: Caller, pool: Pool, move_tag: Any, tiny: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure, answers = pool.host.images.ensure, threading.Event()

    def slowly(reference: str, **options: Any) -> Any:
        answers.wait(60)
        return ensure(reference, **options)

    monkeypatch.setattr(pool.host.images, "ensure", slowly)
    pool.ask()
    pool.keeper.run_once()
    move_tag()
    pool.keeper.note_digest(IMAGE, MOVED)
    answers.set()
    wait_until(lambda: not any(thread.is_alive() for thread in pool.keeper._digests._asking.values()))
    pool.keeper.run_once()
    assert [machine.image_digest for machine in WarmMachine.objects.all()] == [MOVED]


def test_a_machine_is_no_fresher_than_the_digest_it_is_made_of(
    api: Caller, pool: Pool, tiny: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = pool.host.driver.pause

    def takes_long(machine_id: str) -> None:
        WarmMachine.objects.update(checked_at=timezone.now() - DIGEST_FRESH_FOR)
        pause(machine_id)

    monkeypatch.setattr(pool.host.driver, "pause", takes_long)
    [ready] = pool.fill()
    assert create(api, tiny).pk != ready
