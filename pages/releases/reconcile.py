"""Reconcile: the files of pages are made as the rows say, and files that belong to nothing are removed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pages.releases.errors import StoreError
from pages.releases.page_names import linked_names, name_link, name_unlink
from pages.releases.retained import INDEX
from pages.releases.store import PageStore
from pages.releases.store_paths import PageName
from vmbackend.trees import remove_tree

log = logging.getLogger(__name__)
_OF_A_PAGE = frozenset({"releases", "current", "retained", INDEX})


@dataclass(frozen=True, slots=True)
class KnownPage:
    """State of a page by its rows. `busy`: an operation is under way, so its releases are left alone."""

    releases: frozenset[int] = frozenset()
    live: int | None = None
    names: frozenset[PageName] = frozenset()
    busy: bool = False


class KnownRows(Protocol):
    """Reader of rows; each call reads them as they are then. One column follows the files."""

    def known_page(self, page_id: str) -> KnownPage | None:
        """Return the state of a page; None if there is no such page."""
        ...

    def known_operations(self, operation_ids: Iterable[str]) -> Iterable[str]:
        """Return those of the operations that are under way."""
        ...

    def known_names(self) -> Mapping[PageName, str]:
        """Return every name under which a page is to be served, with the id of its page."""
        ...

    def write_kept_bytes(self, page_id: str, size: int) -> None:
        """Write how many bytes the page's files take from now on."""
        ...


@dataclass(slots=True)
class Reconciled:
    """Corrections that were made, one line each."""

    lines: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.lines.append(line)
        log.info("Files of pages: %s", line)


def files_reconcile(store: PageStore, rows: KnownRows, now: float) -> Reconciled:
    """Correct all files, and return what was done. Raise OSError.

    Files are listed first, then rows are read: listed files without a row are left over, because rows are written
    before files. This is safe beside everything else and at any time; a second call finds nothing to do.
    """
    done = Reconciled()
    _empty_trash(store, done)
    _remove_incoming(store, rows, done)
    # Pages are read before the names, so that a page without a row loses its names first.
    pages = sorted(_names_in(store.root / "by-id"))
    for page_id in pages:
        _reconcile_page(store, rows, page_id, now, done)
    _remove_unknown_names(store, rows, done)
    _add_missing_names(store, rows, done)
    return done


def _empty_trash(store: PageStore, done: Reconciled) -> None:
    for name in _names_in(store.paths.trash):
        remove_tree(store.paths.trash / name)
        done.note(f"removed {name} from the trash")


def _remove_incoming(store: PageStore, rows: KnownRows, done: Reconciled) -> None:
    found = _names_in(store.root / "incoming")
    for name in found - set(rows.known_operations(found) if found else ()):
        store.discard(store.root / "incoming" / name)
        done.note(f"removed what operation {name} received")


def _reconcile_page(store: PageStore, rows: KnownRows, page_id: str, now: float, done: Reconciled) -> None:
    try:
        with suppress(StoreError), store.page_locked(page_id):
            _reconcile_locked(store, rows, page_id, now, done)
    except FileNotFoundError:
        # A request that deletes a page does not wait for the lock. The pages after this one are still to be looked at.
        if store.paths.page(page_id).exists():
            raise


def _reconcile_locked(store: PageStore, rows: KnownRows, page_id: str, now: float, done: Reconciled) -> None:
    listed = store.release_numbers(page_id)
    # The row is read under the lock: later changes of release, name or status wait for it, and come after this.
    known = rows.known_page(page_id)
    if known is None:
        _remove_page(store, page_id, done)
        return
    if store.retained_is_over(page_id, now):
        # This comes first: if this process dies in between, the next call does both.
        rows.write_kept_bytes(page_id, store.page_bytes(page_id, now))
    if store.trim_retained(page_id, now):
        done.note(f"removed retained files of {page_id}")
    if not known.busy:
        _reconcile_releases(store, page_id, known, listed, done)


def _reconcile_releases(store: PageStore, page_id: str, known: KnownPage, listed: list[int], done: Reconciled) -> None:
    live = store.release_live(page_id)
    if known.live != live and (known.live is None or known.live in listed):
        store.switch_current(page_id, known.live)
        done.note(f"page {page_id}: release {known.live} is live, {live} was")
    for number in listed:
        if number not in known.releases and number != known.live:
            store.discard(store.paths.release(page_id, number))
            done.note(f"page {page_id}: removed release {number}")
    for name in _names_in(store.paths.page(page_id)) - _OF_A_PAGE:
        store.discard(store.paths.page(page_id) / name)
        done.note(f"page {page_id}: removed {name}")


def _remove_page(store: PageStore, page_id: str, done: Reconciled) -> None:
    for name, owner in list(linked_names(store.root)):
        if owner == page_id:
            name_unlink(store.root, name, page_id)
    store.discard(store.paths.page(page_id))
    done.note(f"removed page {page_id}")


def _remove_unknown_names(store: PageStore, rows: KnownRows, done: Reconciled) -> None:
    """Remove names that no row has. Each is looked at again under the lock of its page."""
    listed = list(linked_names(store.root))
    known = rows.known_names()
    for name, owner in listed:
        if known.get(name) == owner:
            continue
        with _locked_if_there(store, owner):
            page = rows.known_page(owner)
            if page is None or name not in page.names:
                name_unlink(store.root, name, owner)
                done.note(f"removed the name {name.place}")


def _add_missing_names(store: PageStore, rows: KnownRows, done: Reconciled) -> None:
    linked = dict(linked_names(store.root))
    for name, page_id in rows.known_names().items():
        if linked.get(name) == page_id:
            continue
        with suppress(StoreError), store.page_locked(page_id):
            page = rows.known_page(page_id)
            if page is not None and name in page.names:
                name_link(store.root, name, page_id)
                done.note(f"made the name {name.place}")


@contextmanager
def _locked_if_there(store: PageStore, page_id: str) -> Iterator[None]:
    """Lock the page's folder if it exists. A name that leads nowhere is removed without a lock."""
    with ExitStack() as stack:
        with suppress(StoreError, ValueError):
            stack.enter_context(store.page_locked(page_id))
        yield


def _names_in(folder: Path) -> set[str]:
    with suppress(FileNotFoundError):
        return set(os.listdir(folder))  # noqa: PTH208 - names alone
    return set()
