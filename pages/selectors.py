"""Selectors of pages within the scope of an actor. Pages outside do not exist for the actor (404)."""

from __future__ import annotations

from django.db.models import QuerySet, Sum

from accounts.actors import Actor
from accounts.scopes import Scope
from common.errors import NotFound
from domains.models import TargetKind
from domains.selectors import domain_name_of
from pages.models import Page, PageDeploy, PageRelease
from pages.states import LIVE

NOT_FOUND_MESSAGE = "There is no such page."


def visible_pages(actor: Actor) -> QuerySet[Page]:
    """Return the pages of the account, or of the namespace that the credential is bound to; newest first."""
    rows = Page.objects.filter(account=actor.account).select_related("namespace").order_by("-created_at", "-id")
    found = rows.annotate(domain_name=domain_name_of(TargetKind.PAGE))
    return found.filter(namespace_id=actor.namespace_id) if actor.scope is Scope.NAMESPACE else found


def get_page(actor: Actor, slug: str) -> Page:
    """Return a page with the actor's account. Raise NotFound if there is none or the actor may not see it."""
    found = visible_pages(actor).filter(slug=slug).first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    found.account = actor.account
    return found


def current_page(actor: Actor, page: Page) -> Page:
    """Return the current row, whatever its slug. Raise NotFound if it was deleted, or is out of reach since."""
    found = visible_pages(actor).filter(pk=page.pk).first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    return found


def releases_of(page: Page) -> QuerySet[PageRelease]:
    """Return the kept releases, newest first."""
    return PageRelease.objects.filter(page=page).order_by("-number")


def live_release(page: Page) -> PageRelease | None:
    """Return the release that the row names as live."""
    return None if page.release is None else releases_of(page).filter(number=page.release).first()


def kept_bytes(account_id: str, *, besides: PageDeploy | None = None) -> int:
    """Return the bytes that the files of an account's pages take and its live deploys will add. Two queries."""
    live = PageDeploy.objects.filter(page__account_id=account_id, state__in=LIVE)
    if besides is not None:
        live = live.exclude(pk=besides.pk)
    kept: int = Page.objects.filter(account_id=account_id).aggregate(sum=Sum("kept_bytes", default=0))["sum"]
    added: int = live.aggregate(sum=Sum("reserved_bytes", default=0))["sum"]
    return kept + added
