"""The time of the host is set while deploys are under way: none fails for it, and none lasts longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from accounts.models import Account
from pages import publication
from pages.deploys import queue, sweep
from pages.models import PageDeploy
from pages.releases.steady_clock import SteadyClock
from pages.releases.store import CLOCK, PageStore
from pages.states import DeployState
from tests.callers import Caller
from tests.pages.archives import archive_of
from tests.pages.rows import make_page
from tests.pages.stores import release_make

HOUR = 3600.0
OLD, NEW = {"index.html": b"1", "app-B1xYz9aQ.js": b"old"}, {"index.html": b"2"}
SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """The host's time is wrong by so many seconds."""
    real_now, real_time = timezone.now, time.time

    def set_by(seconds: float) -> None:
        monkeypatch.setattr(timezone, "now", lambda: real_now() + timedelta(seconds=seconds))
        monkeypatch.setattr(time, "time", lambda: real_time() + seconds)

    return set_by


def queued(account: Account, **fields: Any) -> PageDeploy:
    return queue.enqueue_deploy(make_page(account), workspace_id="ws_gone", path="/site", actor="", **fields)


@pytest.mark.django_db
def test_a_clock_that_is_set_forward_fails_no_deploy(api: Caller, store: PageStore, set_clock: SetClock) -> None:
    running = queue.claim_deploy(queued(api.account).pk)
    waiting = queued(api.account)
    set_clock(30 * 24 * HOUR)
    assert (sweep.deploys_expire(), sweep.deploys_continue()) == (0, 0)
    assert running is not None
    queue.write_facts(running, step="publish")
    assert queue.claim_deploy(waiting.pk) is not None


@pytest.mark.django_db
@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
def test_a_deploy_ends_at_its_deadline_whatever_the_clock_is_set_to(
    api: Caller, store: PageStore, set_clock: SetClock, seconds: float
) -> None:
    set_clock(seconds)
    late = queued(api.account)
    set_clock(0)
    assert sweep.deploys_expire() == 0
    PageDeploy.objects.update(deadline_at=timezone.now())
    set_clock(-seconds)
    assert sweep.deploys_expire() == 1
    late.refresh_from_db()
    assert (late.state, late.error_code) == (DeployState.FAILED, "deadline_exceeded")


@pytest.mark.django_db
def test_a_deadline_of_a_start_with_another_time_is_limited(api: Caller, store: PageStore) -> None:
    """The host was started again, with the right time, which is an hour earlier."""
    deploy = queued(api.account)
    PageDeploy.objects.update(deadline_at=deploy.deadline_at + timedelta(hours=1))
    assert sweep.deploys_expire() == 0
    deploy.refresh_from_db()
    left = deploy.deadline_at - timezone.now()
    assert timedelta(0) < left <= timedelta(seconds=settings.ENV.deploy_seconds)


def test_retained_chunks_stay_where_the_clock_is_set_forward(tmp_path: Path, set_clock: SetClock) -> None:
    store = PageStore(tmp_path)
    for number, files in enumerate((OLD, NEW), 1):
        release_make(store, "pg_1", number, archive_of(files))
        store.release_publish("pg_1", number)
    set_clock(48 * HOUR)
    assert not store.expire_retained("pg_1", store.clock.now())
    assert not PageStore(tmp_path).expire_retained("pg_1", PageStore(tmp_path).clock.now())
    assert (store.paths.page("pg_1") / "retained/app-B1xYz9aQ.js").read_bytes() == b"old"
    assert store.expire_retained("pg_1", store.clock.now() + 25 * HOUR)


def test_chunks_that_a_clock_ahead_retained_stay_a_day_and_no_longer(tmp_path: Path) -> None:
    store = PageStore(tmp_path)
    for number, files in enumerate((OLD, NEW), 1):
        release_make(store, "pg_1", number, archive_of(files))
        store.release_publish("pg_1", number)
    now = store.clock.now() - 365 * 24 * HOUR
    assert not store.expire_retained("pg_1", now)
    assert not store.expire_retained("pg_1", now + 23 * HOUR)
    assert store.expire_retained("pg_1", now + 25 * HOUR)


def test_processes_agree_on_the_time_and_another_boot_begins_with_the_hosts(
    tmp_path: Path, set_clock: SetClock
) -> None:
    first = SteadyClock(tmp_path / CLOCK)
    begun = first.now()
    assert abs(begun - time.time()) < 1
    set_clock(HOUR)
    assert abs(SteadyClock(tmp_path / CLOCK).now() - begun) < 1
    (tmp_path / CLOCK).write_text(f"another-boot {0.0!r}\n")
    assert abs(SteadyClock(tmp_path / CLOCK).now() - begun - HOUR) < 1
    for rubbish in (b"", b"\xff" * 300, b"x", b"boot nan-"):
        (tmp_path / CLOCK).write_bytes(rubbish)
        assert abs(SteadyClock(tmp_path / CLOCK).now() - begun - HOUR) < 1
        assert abs(SteadyClock(tmp_path / CLOCK).now() - begun - HOUR) < 1


@pytest.mark.django_db
def test_reconcile_keeps_time_by_the_same_clock(store: PageStore, api: Caller, set_clock: SetClock) -> None:
    page = make_page(api.account, release=2)
    for number, files in enumerate((OLD, NEW), 1):
        release_make(store, page.pk, number, archive_of(files))
        page.releases.create(number=number, files=1, bytes=1, source_workspace_id="ws_gone", exported_path="/site")
        store.release_publish(page.pk, number)
    set_clock(48 * HOUR)
    publication.files_reconcile()
    assert (store.paths.page(page.pk) / "retained/app-B1xYz9aQ.js").exists()
