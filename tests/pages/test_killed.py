"""A process that is killed (SIGKILL) before any change that it makes to the disk, and what reconcile makes of the rest.

The child counts the audit events of changes and kills itself at the n-th, for every n until the work ends.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pages.releases.compress import CompressLimits
from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from pages.releases.reconcile import KnownPage, files_reconcile
from pages.releases.store import CLOCK, PageStore
from pages.releases.store_paths import PageName
from tests.pages.archives import archive_of
from tests.pages.stores import live_files, release_make

CHANGES = {
    "os.rename",
    "os.link",
    "os.symlink",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.utime",
    "subprocess.Popen",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
OLD = {"index.html": b"old", "app-B1xYz9aQ.js": b"old chunk", "same.txt": b"same"}
NEW = {"index.html": b"new", "d/app-C2xYz9aQ.js": b"new chunk", "same.txt": b"same", "_redirects": b"/a /b"}
LIVE_NEW = {name: data for name, data in NEW.items() if name != "_redirects"}
SLUG, OTHER = PageName.slug("pages.example.org", "blog"), PageName.slug("pages.example.org", "news")
NOW = 1_800_000_000.0


@dataclass
class Rows:
    """The rows as a test wants them."""

    pages: dict[str, KnownPage] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)

    def known_page(self, page_id: str) -> KnownPage | None:
        return self.pages.get(page_id)

    def known_operations(self, operation_ids: Iterable[str]) -> Iterable[str]:
        return self.operations & set(operation_ids)

    def known_names(self) -> Mapping[PageName, str]:
        return {name: page_id for page_id, page in self.pages.items() for name in page.names}

    def write_kept_bytes(self, page_id: str, size: int) -> None:
        pass


def killed_at(change: int, work: Callable[[], object]) -> bool:
    """Run the work in a child and kill it before its n-th change; False: it ended before."""
    child = os.fork()
    if not child:
        seen = 0

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
                seen += 1
                if seen == change:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.fixture
def new_store(tmp_path: Path) -> Callable[[int], PageStore]:
    def make(number: int) -> PageStore:
        store = PageStore(tmp_path / str(number), compress=CompressLimits(seconds=0))
        release_make(store, "pg_1", 1, archive_of(OLD))
        store.release_publish("pg_1", 1)
        store.name_add("pg_1", SLUG)
        return store

    return make


def served(store: PageStore, name: PageName = SLUG) -> dict[str, bytes] | None:
    """What a visitor of a name finds."""
    public = store.root / name.place / "current" / "public"
    return {str(path.relative_to(public)): path.read_bytes() for path in public.rglob("*") if path.is_file()} or None


def tree(store: PageStore) -> set[str]:
    """Everything below the store, but the folders that are always there."""
    return {str(path.relative_to(store.root)) for path in store.root.rglob("*")} - {CLOCK}


def deploy(store: PageStore) -> None:
    with store.incoming_open("op_2") as fd:
        received = export_receive(io.BytesIO(archive_of(NEW)), fd, ExportLimits(), store.known_contents("pg_1"))
        store.release_create("pg_1", 2, "op_2", received)


def reconciled(store: PageStore, page: KnownPage | None) -> PageStore:
    rows = Rows({"pg_1": page} if page else {})
    files_reconcile(store, rows, NOW)
    assert files_reconcile(store, rows, NOW).lines == [], "the second call finds nothing to do"
    return store


def killed_stores(new_store: Callable[[int], PageStore], work: Callable[[PageStore], object]) -> Iterable[PageStore]:
    for change in range(1, 500):
        store = new_store(change)
        if not killed_at(change, partial(work, store)):
            assert change > 1
            return
        yield store
    pytest.fail("the work does not end")


ONE = KnownPage(frozenset({1}), 1, frozenset({SLUG}))


def test_a_deploy_that_is_killed_leaves_the_old_release_and_no_rubbish(new_store: Callable[[int], PageStore]) -> None:
    before = tree(new_store(0))
    for store in killed_stores(new_store, deploy):
        assert served(store) == OLD
        assert tree(reconciled(store, ONE)) == before
        assert served(store) == OLD


def test_a_release_of_an_operation_that_goes_on_stays(new_store: Callable[[int], PageStore]) -> None:
    store = new_store(0)
    deploy(store)
    busy = KnownPage(frozenset({1}), 1, frozenset({SLUG}), busy=True)
    files_reconcile(store, Rows({"pg_1": busy}, {"op_2"}), NOW)
    assert store.release_numbers("pg_1") == [1, 2]


@pytest.mark.parametrize("live", [1, 2])
def test_a_switch_that_is_killed_ends_as_the_rows_say(new_store: Callable[[int], PageStore], live: int) -> None:
    def switch(store: PageStore) -> None:
        store.release_publish("pg_1", 2)

    known = KnownPage(frozenset({1, 2}), live, frozenset({SLUG}))
    for store in killed_stores(lambda number: _with_two(new_store(number)), switch):
        assert served(store) in (OLD, LIVE_NEW)
        assert served(reconciled(store, known)) == (OLD if live == 1 else LIVE_NEW)
        store.release_publish("pg_1", 2)
        store.trim_releases("pg_1", {2})
        store.expire_retained("pg_1", NOW * 2)
        left = tree(reconciled(store, KnownPage(frozenset({2}), 2, frozenset({SLUG}))))
        assert not {path for path in left if "B1xYz9aQ" in path or path.endswith(".new")}


def _with_two(store: PageStore) -> PageStore:
    deploy(store)
    return store


def test_a_rename_that_is_killed_leaves_one_of_the_names(new_store: Callable[[int], PageStore]) -> None:
    for store in killed_stores(new_store, lambda store: store.name_rename("pg_1", SLUG, OTHER)):
        assert [served(store, SLUG), served(store, OTHER)].count(OLD) == 1
        reconciled(store, KnownPage(frozenset({1}), 1, frozenset({OTHER})))
        assert (served(store, SLUG), served(store, OTHER)) == (None, OLD)


def test_a_trim_that_is_killed_ends_with_the_releases_of_the_rows(new_store: Callable[[int], PageStore]) -> None:
    def trim(store: PageStore) -> None:
        store.trim_releases("pg_1", {2})

    def with_live_second(number: int) -> PageStore:
        store = _with_two(new_store(number))
        store.release_publish("pg_1", 2)
        return store

    for store in killed_stores(with_live_second, trim):
        assert served(store) == LIVE_NEW
        assert reconciled(store, KnownPage(frozenset({2}), 2, frozenset({SLUG}))).release_numbers("pg_1") == [2]


def test_a_deletion_that_is_killed_leaves_nothing(new_store: Callable[[int], PageStore]) -> None:
    for store in killed_stores(new_store, lambda store: store.page_delete("pg_1", [SLUG])):
        left = tree(reconciled(store, None))
        assert left == {"incoming", "by-id", "by-slug", "by-slug/pages.example.org", "trash"}


def test_expiry_that_is_killed_is_done_by_the_next(new_store: Callable[[int], PageStore]) -> None:
    def switched(number: int) -> PageStore:
        store = _with_two(new_store(number))
        store.release_publish("pg_1", 2)
        return store

    known = KnownPage(frozenset({1, 2}), 2, frozenset({SLUG}))
    for store in killed_stores(switched, lambda store: store.expire_retained("pg_1", NOW * 2)):
        files_reconcile(store, Rows({"pg_1": known}), NOW * 2)
        assert list((store.paths.page("pg_1") / "retained").iterdir()) == []


def test_reconcile_that_is_killed_is_finished_by_the_next(new_store: Callable[[int], PageStore]) -> None:
    def soiled(number: int) -> PageStore:
        store = _with_two(new_store(number))
        store.name_add("pg_1", OTHER)
        (store.root / "incoming" / "op_9" / "public").mkdir(parents=True)
        (store.root / "trash" / "x").mkdir()
        return store

    before = tree(new_store(0))
    for store in killed_stores(soiled, lambda store: files_reconcile(store, Rows({"pg_1": ONE}), NOW)):
        assert served(store) == OLD
        assert tree(reconciled(store, ONE)) == before


def test_names_that_are_missing_are_made_and_those_of_no_page_removed(new_store: Callable[[int], PageStore]) -> None:
    store = new_store(1)
    store.name_remove("pg_1", SLUG)
    gone = PageName.slug("pages.example.org", "gone")
    (store.root / gone.place).symlink_to(gone.target("pg_gone"))
    reconciled(store, KnownPage(frozenset({1}), 1, frozenset({SLUG, OTHER})))
    assert served(store, SLUG) == served(store, OTHER) == OLD
    assert not (store.root / gone.place).is_symlink()


def test_a_name_moves_to_the_page_that_the_rows_name(new_store: Callable[[int], PageStore]) -> None:
    store = new_store(1)
    release_make(store, "pg_2", 1, archive_of({"index.html": b"2"}))
    store.release_publish("pg_2", 1)
    rows = Rows({"pg_1": KnownPage(frozenset({1}), 1), "pg_2": KnownPage(frozenset({1}), 1, frozenset({SLUG}))})
    files_reconcile(store, rows, NOW)
    assert served(store) == {"index.html": b"2"}
    assert live_files(store, "pg_1")


def test_a_page_that_is_deleted_meanwhile_keeps_no_later_one_from_being_corrected(
    new_store: Callable[[int], PageStore],
) -> None:
    """A request that deletes a page does not wait for the page's lock."""
    store = new_store(1)
    for number in (1, 2):
        release_make(store, "pg_2", number, archive_of(OLD if number == 1 else NEW))
    store.release_publish("pg_2", 1)

    class Deleting(Rows):
        def known_page(self, page_id: str) -> KnownPage | None:
            known = super().known_page(page_id)
            if page_id == "pg_1":
                store.page_delete(page_id)
                self.pages.pop(page_id, None)
            return known

    rows = Deleting({"pg_1": KnownPage(frozenset({1}), 1), "pg_2": KnownPage(frozenset({1, 2}), 2)})
    files_reconcile(store, rows, NOW)
    assert live_files(store, "pg_2") == LIVE_NEW
