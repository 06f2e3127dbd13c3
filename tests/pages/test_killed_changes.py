"""A process is killed at each statement of a rename, a rollback, a deletion, of switching off and on: the old state or
the new one is served, never a mix, and the worker's next look makes the files as the row says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from pages import publication
from pages.models import Page, PageEvent, PageRelease
from pages.releases.errors import StoreError
from pages.releases.store import PageStore
from tests.callers import Caller
from tests.killed_process import KilledProcess, killed_process
from tests.pages.conftest import Site
from tests.pages.rows import make_page
from tests.pages.stores import left_files, unfinished

pytestmark = pytest.mark.django_db(transaction=True)
Served = Callable[[str], str | None]


@pytest.fixture
def process(site: Site) -> Iterator[KilledProcess]:
    site.create(slug="abc")
    site.write(index_html="two")
    site.deploy("abc")
    with killed_process() as found:
        yield found


def look_after(store: PageStore) -> None:
    publication.publications_continue()
    publication.files_reconcile()
    assert publication.files_reconcile() == []
    assert unfinished(store) == []
    for page in Page.objects.all():
        assert not page.is_stale
        rows = sorted(PageRelease.objects.filter(page=page).values_list("number", flat=True))
        assert (store.release_numbers(page.pk), store.release_live(page.pk)) == (rows, page.release)


def killed_statements(process: KilledProcess, what: str) -> Iterator[bool]:
    """Once for each statement, after the death; False after the last, which was not killed."""
    for statement in count(1):
        killed = process.killed_at(statement, f"tests.pages.killed.{what}")
        yield killed
        if not killed:
            assert statement > 3
            return


def test_a_rename(process: KilledProcess, store: PageStore, served: Served) -> None:
    names = {"abc", "def"}
    for _ in killed_statements(process, "rename"):
        assert [served(name) for name in names].count("two") == 1
        look_after(store)
        page = Page.objects.get()
        assert (served(page.slug), served((names - {page.slug}).pop())) == ("two", None)
        assert page.published_slug == page.slug


def test_a_rollback(process: KilledProcess, store: PageStore, served: Served) -> None:
    for _ in killed_statements(process, "rollback"):
        assert served("abc") in ("one", "two")
        look_after(store)
        assert served("abc") == {1: "one", 2: "two"}[Page.objects.get().release or 0]


@pytest.mark.parametrize("what", ["disable", "enable"])
def test_off_and_on(process: KilledProcess, store: PageStore, served: Served, site: Site, what: str) -> None:
    opposite = {"disable": "enable", "enable": "disable"}[what]
    site.api.post(f"/pages/abc/{opposite}")
    for killed in killed_statements(process, what):
        assert served("abc") in (None, "two")
        look_after(store)
        page = Page.objects.get()
        assert served("abc") == ("two" if page.status == "active" else None)
        assert killed or page.status == {"disable": "disabled", "enable": "active"}[what]
        site.api.post(f"/pages/abc/{opposite}")


def test_a_deletion(process: KilledProcess, store: PageStore, served: Served, site: Site, vmhost: Any) -> None:
    for killed in killed_statements(process, "delete"):
        assert served("abc") in (None, "two")
        look_after(store)
        if Page.objects.exists():
            assert (killed, served("abc")) == (True, "two")
            continue
        assert served("abc") is None
        assert left_files(store) == []
        assert PageEvent.objects.filter(action="deleted").count() == 1
        if killed:
            PageEvent.objects.all().delete()
            assert site.create(slug="abc").status_code == 201
            vmhost.settle()


def test_pages_that_cannot_be_published_keep_no_others_from_it(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "BATCH", 2)
    pages = sorted(make_page(api.account, is_stale=True).pk for _ in range(7))
    tried = []

    def apply(page_id: str) -> None:
        tried.append(page_id)
        if page_id in pages[:4]:
            raise StoreError("damaged")

    monkeypatch.setattr(publication, "apply_publication", apply)
    assert publication.publications_continue() == 3
    assert tried == pages
    monkeypatch.setattr(publication, "CONTINUE_SECONDS", 0.0)
    assert publication.publications_continue() == 0
    assert tried == [*pages, *pages[:2]]
