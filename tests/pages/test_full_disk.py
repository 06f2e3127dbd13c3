"""Deploys on a full disk: the live release stays, nothing is left behind, and with room the next one succeeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings

from pages import publication
from pages.models import Page, PageRelease
from pages.releases.store import PageStore
from tests.pages.conftest import Site
from tests.small_disk import SmallDisk, small_disk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.host, pytest.mark.one_database]


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
