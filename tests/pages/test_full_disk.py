"""Deploys on a full disk: the live release stays, nothing is left behind, and with room the next one succeeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from pages import publication
from pages.deploys import steps, sweep
from pages.models import Page, PageDeploy, PageRelease
from pages.releases import store as store_module
from pages.releases.store import PageStore
from pages.states import DeployState
from tests.pages.conftest import Site
from tests.small_disk import SmallDisk, small_disk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.host]


@pytest.fixture
def disk(store: PageStore) -> Iterator[SmallDisk]:
    with small_disk(store.root, 8) as mounted:
        PageStore(settings.STATE / "pages")
        yield mounted


def test_a_deploy_without_room_leaves_the_live_release(
    disk: SmallDisk, site: Site, store: PageStore, served: Callable[[str], str | None]
) -> None:
    assert site.create(slug="abc").status_code == 201
    texts = random.Random(7).choices("abcdefgh \n", k=900_000)
    site.write(index_html="two", large_js="".join(texts))
    # Without any room, in the middle of a file, and in the middle of its compressed copies.
    for leave_mb in (0, 1, 2):
        disk.fill(leave_mb)
        answer = site.deploy("abc")
        assert answer.status_code in (200, 503), answer.json()
        assert served("abc") == ("one" if answer.status_code == 503 else "two")
        assert not list((store.root / "incoming").iterdir())
        disk.make_room()
    assert site.deploy("abc").status_code == 200
    assert served("abc") == "two"
    publication.files_reconcile()
    assert store.release_numbers(Page.objects.get().pk) == sorted(PageRelease.objects.values_list("number", flat=True))
    assert publication.files_reconcile() == []


def full_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fill: Callable[[], None]) -> None:
    """The disk becomes full as this step begins, whose own work is unchanged."""
    real = getattr(owner, name)

    def step(*values: Any, **named: Any) -> Any:
        fill()
        return real(*values, **named)

    monkeypatch.setattr(owner, name, step)


# The step, and what there is no room for.
STEPS = {
    "receiving": (steps, "export_receive"),
    "compressing": (store_module, "release_copies"),
    "the manifest": (store_module, "manifest_bytes"),
}


@pytest.mark.parametrize("full_of", ["fill", "fill_names"])
@pytest.mark.parametrize("step", STEPS)
def test_a_disk_that_fills_at_a_step_leaves_the_live_release(
    disk: SmallDisk,
    site: Site,
    store: PageStore,
    served: Callable[[str], str | None],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    full_of: str,
) -> None:
    site.create(slug="abc")
    site.write(index_html="two", large_js="abc def\n" * 30_000)
    with monkeypatch.context() as patched:
        full_before(patched, *STEPS[step], getattr(disk, full_of))
        answer = site.deploy("abc")
    # Copies are optional: without them it may succeed where the rest needs no room.
    assert answer.status_code in (200, 503), answer.json()
    assert served("abc") == ("one" if answer.status_code == 503 else "two")
    assert not list((store.root / "incoming").iterdir())
    disk.make_room()
    assert site.deploy("abc").status_code == 200
    assert served("abc") == "two"
    publication.files_reconcile()
    assert store.release_numbers(Page.objects.get().pk) == sorted(PageRelease.objects.values_list("number", flat=True))


def test_a_release_that_cannot_be_made_live_is_when_there_is_room(
    disk: SmallDisk,
    site: Site,
    vmhost: Any,
    store: PageStore,
    served: Callable[[str], str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.create(slug="abc")
    # From here on: a busy host may take longer for the creation.
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"deploy_wait_seconds": 0.5}))
    site.write(index_html="two")
    with monkeypatch.context() as patched:
        full_before(patched, PageStore, "switch_current", disk.fill_names)
        assert site.deploy("abc").status_code == 202
        vmhost.settle()
    assert (served("abc"), Page.objects.get().release) == ("one", 2)
    disk.make_room()
    running = PageDeploy.objects.filter(state=DeployState.RUNNING)
    running.update(lease_until=timezone.now())
    assert sweep.deploys_continue() == 1
    vmhost.settle()
    assert served("abc") == "two"
    assert not running.exists()


def test_a_rollback_without_room_takes_effect_when_there_is_some(
    disk: SmallDisk, site: Site, served: Callable[[str], str | None]
) -> None:
    site.create(slug="abc")
    site.write(index_html="two")
    site.deploy("abc")
    disk.fill_names()
    assert site.api.post("/pages/abc/rollback", {"release": 1}).status_code == 202
    assert served("abc") == "two"
    disk.make_room()
    publication.publications_continue()
    assert served("abc") == "one"
