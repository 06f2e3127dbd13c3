"""Services that change a page's row at once; they are its only writers. Deploys are `pages.deploys`.

A change of what is served is written with `is_stale`, in one transaction with its audit entry. Afterwards
`publish_page` makes the files follow the row. If the process dies in between, the row has changed, and the next run of
the worker applies it.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from common.commits import call_after_commit
from common.errors import NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from domains.models import TargetKind
from domains.services import target_removed, targets_changed
from namespaces.models import Namespace
from pages import errors, payments, publication
from pages.audit import record_event
from pages.models import Page, PageDeploy, PageRelease
from pages.selectors import NOT_FOUND_MESSAGE
from pages.states import LIVE, PageStatus

# When an account is switched, so many of its pages are published at once; each takes a few milliseconds.
PUBLISHED_AT_ONCE = 100


@transaction.atomic
def page_update(
    *, page: Page, name: str | None = None, slug: str | None = None, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> Page:
    """Rename a page, or give it another slug. Idempotent. Raise PageSlugTaken, NotFound; nothing has changed then."""
    stored = lock_page(page)
    wanted = {"name": name, "slug": slug}
    changes = {key: value for key, value in wanted.items() if value is not None and value != getattr(stored, key)}
    if not changes:
        return stored
    detail = ", ".join(f"{key} {getattr(stored, key)} to {value}" for key, value in changes.items())
    try:
        with transaction.atomic():
            write_page(stored, **changes, **({"is_stale": True} if "slug" in changes else {}))
    except IntegrityError as exc:
        raise errors.PageSlugTaken(details={"slug": slug}) from exc
    record_event(stored, "updated", f"Changed {detail}.", actor=actor, origin=origin)
    return stored


@transaction.atomic
def page_enable(*, page: Page, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Page:
    """Serve a page again that its owner disabled. Idempotent.

    Raise PageDisabledByStaff, and NotFound if it is deleted.
    """
    stored = lock_page(page)
    if stored.disabled_reason:
        raise errors.PageDisabledByStaff(details={"reason": stored.disabled_reason})
    return _change_status(stored, PageStatus.ACTIVE, actor, origin)


@transaction.atomic
def page_disable(*, page: Page, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Page:
    """Stop serving a page; its releases stay. Idempotent. Raise NotFound if it is deleted."""
    return _change_status(lock_page(page), PageStatus.DISABLED, actor, origin)


@transaction.atomic
def page_staff_disable(*, page: Page, reason: str, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Page:
    """Stop serving a page by staff: its owner reads the reason, and cannot enable it.

    Raise NotFound if it is deleted.
    """
    return _change_status(lock_page(page), PageStatus.DISABLED, actor, origin, reason=reason)


@transaction.atomic
def page_staff_enable(*, page: Page, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Page:
    """Serve a page again that its owner or staff disabled. Idempotent. Raise NotFound if it is deleted."""
    return _change_status(lock_page(page), PageStatus.ACTIVE, actor, origin, reason="")


def _change_status(
    stored: Page, to: PageStatus, actor: str, origin: RequestOrigin, *, reason: str | None = None
) -> Page:
    """Write the status. `reason`: the reason of staff; None keeps the present one."""
    reason = stored.disabled_reason if reason is None else reason
    if (stored.status, stored.disabled_reason) == (to, reason):
        return stored
    write_page(stored, status=to, disabled_reason=reason, is_stale=True)
    targets_changed(TargetKind.PAGE, [stored.pk])
    action = "enabled" if to == PageStatus.ACTIVE else "disabled"
    record_event(stored, action, reason, actor=actor, origin=origin)
    return stored


@transaction.atomic
def page_rollback(*, page: Page, number: int, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Page:
    """Make a kept release live. Idempotent.

    Raise ReleaseNotKept, DeployInProgress, NotFound; nothing has changed then.
    """
    stored = lock_page(page)
    if PageDeploy.objects.filter(page=stored, state__in=LIVE).exists():
        raise errors.DeployInProgress
    kept = PageRelease.objects.filter(page=stored, number=number).first()
    if kept is None:
        raise errors.ReleaseNotKept(f"Release {number} of the page is not kept.")
    if stored.release != number:
        record_event(stored, "rolled_back", f"Release {stored.release} to {number}.", actor=actor, origin=origin)
        write_live_release(stored, kept)
    return stored


@transaction.atomic
def page_delete(*, page: Page, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Page:
    """Delete the row with its releases and deploys. A deploy under way loses its claim, and is not charged.

    Audit entries stay. The caller removes the files of the returned row (`publication.remove_files`); if it dies,
    reconcile does. Raise NotFound.
    """
    # This lock comes before the ledger's and the page's, as at the end of a deploy. No deploy is requested until the
    # commit.
    account_lock(page.account)
    for deploy in PageDeploy.objects.filter(page=page, state__in=LIVE).select_related("page"):
        payments.hold_release(deploy)
    stored = lock_page(page)
    record_event(stored, "deleted", actor=actor, origin=origin)
    _delete_row(stored)
    return stored


@transaction.atomic
def page_discard(*, page: Page) -> bool:
    """Delete a page whose first deploy failed.

    Return False if it has a release or another deploy, or is deleted.
    """
    stored = Page.objects.select_for_update(of=("self",)).filter(pk=page.pk, release=None).first()
    if stored is None or PageDeploy.objects.filter(page=stored, state__in=LIVE).exists():
        return False
    record_event(stored, "discarded", "Its first deploy failed.")
    _delete_row(stored)
    return True


def _delete_row(page: Page) -> None:
    """Delete the row with its domain. The instance keeps its id."""
    target_removed(TargetKind.PAGE, page.pk)
    Page.objects.filter(pk=page.pk).delete()


@transaction.atomic
def pages_move(source: Namespace, target: Namespace, actor: str) -> int:
    """Move the pages of a namespace that is being deleted (`namespaces.hooks`), in the caller's transaction."""
    moved = list(Page.objects.select_for_update(of=("self",)).filter(namespace=source))
    Page.objects.filter(namespace=source).update(namespace=target, updated_at=timezone.now())
    for page in moved:
        record_event(page, "moved", f"Moved from {source.slug} to {target.slug}.", actor=actor)
    return len(moved)


def pages_follow(account: Account) -> None:
    """Mark and publish the pages of an account that was activated or deactivated (`accounts.hooks`).

    The rows change in the transaction of the account, the files after its commit. The worker publishes the rest if the
    process dies or there are very many pages.
    """
    Page.objects.filter(account=account).update(is_stale=True)
    pages = list(Page.objects.filter(account=account).order_by("pk"))
    targets_changed(TargetKind.PAGE, [page.pk for page in pages])
    for page in pages[:PUBLISHED_AT_ONCE]:
        call_after_commit(publication.publish_page, page)


def lock_page(page: Page) -> Page:
    """Return the current row with its namespace, locked to the end of the transaction.

    Raise NotFound if it is deleted.
    """
    rows = Page.objects.select_for_update(of=("self",)).select_related("namespace", "account__plan")
    found = rows.filter(pk=page.pk).first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    return found


def write_live_release(page: Page, release: PageRelease) -> None:
    """Write a release as the live one into a locked row, with its source. The files follow."""
    source = {"source_workspace_id": release.source_workspace_id, "exported_path": release.exported_path}
    write_page(page, release=release.number, is_stale=True, **source)


def write_page(page: Page, **columns: Any) -> None:
    """Write columns of a locked row, and a new `updated_at`. Raise IntegrityError if a slug is taken."""
    columns["updated_at"] = timezone.now()
    Page.objects.filter(pk=page.pk).update(**columns)
    for name, value in columns.items():
        setattr(page, name, value)
