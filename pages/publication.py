"""Publication: the files of pages follow their rows, which say which release is live and under which name it is served.

The row decides. The process that has changed the row applies it under the row's lock, so that the last change wins. If
that process dies, the worker's `publications_continue` applies it. The lock of the page's folder is taken first:
waiting for it with a row locked would keep all writers of that row waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.db import transaction

from accounts.models import Account
from common.sweeps import rows_in_turn
from pages.models import Page, PageDeploy, PageRelease
from pages.releases import reconcile
from pages.releases.errors import StoreError
from pages.releases.page_names import name_link, name_move, name_unlink
from pages.releases.reconcile import KnownPage
from pages.releases.store import PageStore
from pages.releases.store_paths import PageName
from pages.states import LIVE, DeployState, PageStatus

logger = logging.getLogger(__name__)

BATCH = 100
# Time for one run of the worker; the next begins after a few seconds.
CONTINUE_SECONDS = 20.0


def page_store() -> PageStore:
    """Return the store of all pages of this instance."""
    return _store(Path(settings.STATE) / "pages", settings.ENV.page_retained_seconds)


@lru_cache(maxsize=1)
def _store(folder: Path, retained_seconds: int) -> PageStore:
    return PageStore(folder, retained_seconds)


def publish_page(page: Page) -> bool:
    """Apply a change of a page.

    Return False if it cannot be applied now: the worker does it soon, and the log says why.
    """
    try:
        apply_publication(page.pk)
    except (OSError, StoreError) as exc:
        logger.error("the files of %s do not follow its row yet, and the worker tries again: %s", page.pk, exc)
        return False
    return True


def apply_publication(page_id: str) -> None:
    """Make the files of a page as its row says. Idempotent. Raise StoreError, OSError; the row stays stale then."""
    for former in _pages_before(page_id):
        _apply_row(former)
    _apply_row(page_id)


def _pages_before(page_id: str) -> Iterable[str]:
    """Return the pages whose files still have the name that this page's row has."""
    slug = Page.objects.filter(pk=page_id, is_stale=True).values_list("slug", flat=True).first()
    others = (
        Page.objects.filter(published_slug=slug, is_stale=True).exclude(pk=page_id) if slug else Page.objects.none()
    )
    return list(others.values_list("pk", flat=True))


def _apply_row(page_id: str) -> None:
    """Apply a row under the lock of the page's folder, then of the row. Slow work is done while no row is locked.

    The row may change until it is locked; then the rest is done again.
    """
    store = page_store()
    with _locked_folder(store, page_id):
        while not _apply_locked(store, page_id, _prepare_release(store, page_id)):
            pass


@contextmanager
def _locked_folder(store: PageStore, page_id: str) -> Iterator[None]:
    """Lock the page's folder if it exists.

    A page without files has nothing that could change at the same time.
    """
    with ExitStack() as stack:
        with suppress(StoreError):
            stack.enter_context(store.page_locked(page_id))
        yield


def _prepare_release(store: PageStore, page_id: str) -> int | None:
    """Prepare the row's release and return its number.

    Return None if there is none, or if the page is not served and its release cannot be prepared.
    """
    page, prepared = Page.objects.filter(pk=page_id, is_stale=True).first(), None
    if page is not None and page.release is not None:
        with _errors_while_served(page):
            store.release_prepare(page_id, page.release)
            prepared = page.release
    return prepared


@contextmanager
def _errors_while_served(page: Page) -> Iterator[None]:
    """Log errors of a page that is not served, and raise those of other pages.

    Damaged files of a page that is not served must not keep its name.
    """
    try:
        yield
    except (OSError, StoreError) as exc:
        if _is_served(page):
            raise
        logger.error("release %s of %s cannot be published; the page is not served now: %s", page.release, page.pk, exc)


@transaction.atomic
def _apply_locked(store: PageStore, page_id: str, prepared: int | None) -> bool:
    """Apply a row; return False if another release than the prepared one is to be live.

    A release that cannot be applied is left if its page is not served. Enabling the page makes the row stale again.
    """
    page = Page.objects.select_for_update(of=("self",)).filter(pk=page_id, is_stale=True).first()
    if page is None:
        return True
    wanted = page.slug if _is_served(page) else ""
    if page.release != prepared and (wanted or prepared is not None):
        return False
    if prepared is not None:
        with _errors_while_served(page):
            store.release_switch(page.pk, prepared)
    _apply_name(store, page, wanted)
    Page.objects.filter(pk=page.pk).update(is_stale=False, published_slug=wanted)
    return True


def _is_served(page: Page) -> bool:
    """Return whether the page is served.

    The account is looked up after the page's row is locked: a change of the account marks its pages afterwards.
    """
    is_public = page.status == PageStatus.ACTIVE and page.release is not None
    return is_public and Account.objects.filter(pk=page.account_id, is_active=True).exists()


def _apply_name(store: PageStore, page: Page, wanted: str) -> None:
    former = page.published_slug
    if wanted and former and wanted != former:
        name_move(store.root, page_name(page, former), page_name(page, wanted), page.pk)
    elif wanted:
        name_link(store.root, page_name(page, wanted), page.pk)
    elif former:
        name_unlink(store.root, page_name(page, former), page.pk)


def page_name(page: Page, slug: str) -> PageName:
    return PageName.slug(page.domain, slug)


def remove_files(page: Page) -> None:
    """Remove the names and files of a page whose row is deleted. Reconcile removes those that cannot be removed now."""
    names = {page_name(page, slug) for slug in (page.slug, page.published_slug) if slug}
    try:
        page_store().page_delete(page.pk, names)
    except (OSError, StoreError) as exc:
        logger.error("the files of %s are not removed yet: %s", page.pk, exc)


def remove_on_commit(page: Page) -> None:
    """Call `remove_files` once the deletion of the row is committed: until then the page is served."""
    transaction.on_commit(lambda: remove_files(page))


def publications_continue() -> int:
    """Apply rows that a process has changed and not applied, as many as there is time for. Return how many.

    Each is tried once: a row that cannot be applied now does not delay the others.
    """
    stale = rows_in_turn(Page.objects.filter(is_stale=True), batch=BATCH, seconds=CONTINUE_SECONDS)
    return sum(publish_page(page) for page in stale)


def files_reconcile() -> list[str]:
    """Compare all files with the rows, and correct the files. Return one line for each correction. Raise OSError."""
    return reconcile.files_reconcile(page_store(), PageRows(), page_store().clock.now()).lines


class PageRows:
    """Rows at the time of each call, and the column for the files' size (`pages.releases.reconcile.KnownRows`)."""

    def known_page(self, page_id: str) -> KnownPage | None:
        page = Page.objects.filter(pk=page_id).first()
        if page is None:
            return None
        busy = PageDeploy.objects.filter(page=page, state__in=LIVE).exists()
        numbers = PageRelease.objects.filter(page=page).values_list("number", flat=True)
        names = {page_name(page, page.slug)} if _is_served(page) else set()
        return KnownPage(frozenset(numbers), page.release, frozenset(names), busy)

    def known_operations(self, operation_ids: Iterable[str]) -> Iterable[str]:
        """Return the claims that are running: each attempt of a deploy receives into a folder of its own."""
        running = PageDeploy.objects.filter(claim__in=list(operation_ids), state=DeployState.RUNNING)
        return set(running.values_list("claim", flat=True))

    def write_kept_bytes(self, page_id: str, size: int) -> None:
        Page.objects.filter(pk=page_id).update(kept_bytes=size)

    def known_names(self) -> dict[PageName, str]:
        served = Page.objects.filter(status=PageStatus.ACTIVE, release__isnull=False, account__is_active=True)
        return {PageName.slug(domain, slug): key for key, domain, slug in served.values_list("pk", "domain", "slug")}
