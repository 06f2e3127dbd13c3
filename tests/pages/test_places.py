"""Who is carried out when: places of an account, what no process works on, deadlines, the clock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from accounts.models import Account
from common.work import wakeups
from common.work.leases import ClaimLost
from pages.deploys import places, queue, succession, sweep
from pages.models import Page, PageDeploy
from pages.releases.store import PageStore
from pages.states import DeploymentState, DeployState
from tests.callers import Caller
from tests.pages.rows import make_page

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The deploys of which the worker is notified."""
    found: list[str] = []

    def send(name: str, args: list[str], **options: Any) -> None:
        found.extend(args)

    monkeypatch.setattr(wakeups.current_app, "send_task", send)
    return found


def make_deploy(account: Account, **fields: Any) -> PageDeploy:
    deadline = timezone.now() + timedelta(hours=1)
    made = {"workspace_id": "ws_gone", "path": "/site", "deadline_at": deadline, **fields}
    return PageDeploy.objects.create(page=make_page(account), **made)


def claimed(deploy: PageDeploy) -> bool:
    return queue.claim_deploy(deploy.pk) is not None


def test_an_account_has_as_many_places_as_it_leaves(
    api: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pages_threads": 4}))
    assert [claimed(make_deploy(api.account)) for _ in range(3)] == [True, True, False]
    assert [claimed(make_deploy(stranger.account)) for _ in range(3)] == [True, False, False]


def next_claimed() -> PageDeploy | None:
    return queue.claim_next()


def test_accounts_take_turns_however_many_deploys_one_has_queued(
    api: Caller, stranger: Caller, new_account: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pages_threads": 4}))
    early = timezone.now() - timedelta(minutes=1)
    many = [make_deploy(caller.account, created_at=early) for caller in (api, stranger) for _ in range(6)]
    for _ in range(3):
        assert next_claimed()
    assert next_claimed() is None
    make_deploy(new_account("third").account)
    assert next_claimed(), "a place is left for an account that has none"
    waiting = make_deploy(new_account("fourth").account)
    assert next_claimed() is None
    ended = next(deploy for deploy in many if PageDeploy.objects.get(pk=deploy.pk).state == DeployState.RUNNING)
    PageDeploy.objects.filter(pk=ended.pk).update(state=DeployState.SUCCEEDED)
    found = next_claimed()
    assert found is not None
    assert found.pk == waiting.pk


def test_of_an_account_the_oldest_is_next(api: Caller) -> None:
    make_deploy(api.account)
    oldest = make_deploy(api.account, created_at=timezone.now() - timedelta(minutes=1))
    found = next_claimed()
    assert found is not None
    assert found.pk == oldest.pk


def test_guests_that_send_slowly_hold_no_place_against_others(
    api: Caller, stranger: Caller, new_account: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pages_threads": 4}))
    for caller in (api, stranger):
        for _ in range(2):
            found = queue.claim_deploy(make_deploy(caller.account).pk)
            assert found is not None
            queue.place_leave(found)
    assert not claimed(make_deploy(api.account)), "an account has no more of them for that"
    assert claimed(make_deploy(new_account("third").account))


def test_deploys_without_a_place_are_limited_too(
    new_account: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pages_threads": 1}))
    for number in range(5):
        deploy = make_deploy(new_account(f"account {number}").account)
        assert claimed(deploy) == (number < 4)
        PageDeploy.objects.filter(pk=deploy.pk, state=DeployState.RUNNING).update(step=places.SLOW_EXPORT)


def test_a_lost_claim_writes_nothing(api: Caller) -> None:
    deploy = queue.claim_deploy(make_deploy(api.account).pk)
    assert deploy is not None
    PageDeploy.objects.update(claim="another")
    with pytest.raises(ClaimLost):
        queue.write_facts(deploy, step="publish")
    with pytest.raises(ClaimLost):
        queue.finish_deploy(deploy, DeployState.SUCCEEDED)
    with pytest.raises(ClaimLost):
        queue.renew_lease(deploy)
    assert not queue.requeue_deploy(deploy, because="a test")
    assert PageDeploy.objects.get().state == DeployState.RUNNING


@pytest.mark.parametrize("seconds", [-60, 60])
def test_what_a_dead_process_left_is_queued_again_until_its_attempts_are_over(api: Caller, seconds: int) -> None:
    """Also where the lease was written before the clock was set back."""
    deploy = make_deploy(api.account)
    for attempt in range(1, 4):
        assert claimed(deploy)
        assert sweep.deploys_continue() == 0
        PageDeploy.objects.update(lease_until=timezone.now() + timedelta(seconds=seconds))
        assert sweep.deploys_continue() == 1
        assert PageDeploy.objects.get().attempt == attempt
    deploy.refresh_from_db()
    page = Page.objects.get()
    assert (deploy.state, deploy.error_code) == (DeployState.FAILED, "VM_UNAVAILABLE")
    assert (page.deployment_state, page.deployment_error_code) == (DeploymentState.FAILED, "VM_UNAVAILABLE")


def test_a_deploy_past_its_deadline_fails(api: Caller) -> None:
    late = make_deploy(api.account, deadline_at=timezone.now())
    assert not claimed(late)
    assert [sweep.deploys_expire(), sweep.deploys_expire()] == [1, 0]
    late.refresh_from_db()
    assert (late.state, late.error_code) == (DeployState.FAILED, "deadline_exceeded")


def test_a_deploy_that_has_made_its_release_is_never_given_up(api: Caller) -> None:
    late = make_deploy(api.account, deadline_at=timezone.now(), release=1, attempt=7)
    assert sweep.deploys_expire() == 0
    assert claimed(late)
    PageDeploy.objects.update(lease_until=timezone.now() - timedelta(minutes=1))
    assert sweep.deploys_continue() == 1
    assert claimed(late)


def test_the_worker_is_notified_again_of_what_is_queued(api: Caller, sent: list[str]) -> None:
    deploy = make_deploy(api.account)
    sweep.deploys_continue()
    assert sent == []
    PageDeploy.objects.update(notified_at=timezone.now() - timedelta(minutes=1))
    sweep.deploys_continue()
    sweep.deploys_continue()
    assert sent == [deploy.pk]


def test_old_deploys_are_removed(api: Caller) -> None:
    now = timezone.now()
    make_deploy(api.account, state=DeployState.FAILED, finished_at=now - timedelta(days=2))
    kept = make_deploy(api.account, state=DeployState.FAILED, finished_at=now)
    assert sweep.prune_deploys() == 1
    assert PageDeploy.objects.get() == kept


def test_a_new_worker_takes_over_at_once_what_its_predecessor_left(
    api: Caller, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy = make_deploy(api.account)
    assert claimed(deploy)
    monkeypatch.setattr(connection, "close", lambda: None)
    assert succession.settle_predecessor() == 1
    deploy.refresh_from_db()
    assert (deploy.state, deploy.attempt) == (DeployState.QUEUED, 1)


def test_a_second_worker_leaves_the_deploys_of_the_first(api: Caller, store: PageStore) -> None:
    assert claimed(make_deploy(api.account))
    fd = os.open(store.root / succession.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        assert succession.settle_predecessor() == 0
    finally:
        os.close(fd)
    assert PageDeploy.objects.get().state == DeployState.RUNNING
