"""Pages as targets of custom domains: handlers of `domains.hooks`."""

from __future__ import annotations

from collections.abc import Collection

from domains.hooks import DomainEvent
from domains.models import TargetKind
from pages.audit import record_event_of
from pages.models import Page
from pages.states import PageStatus


def served_pages(kind: TargetKind, ids: Collection[str]) -> set[str]:
    """Return the pages that are not disabled and belong to active accounts.

    A page without a release has no files, so the edge finds nothing behind its name.
    """
    if kind != TargetKind.PAGE:
        return set()
    served = Page.objects.filter(pk__in=ids, status=PageStatus.ACTIVE, account__is_active=True)
    return set(served.values_list("pk", flat=True))


def lock_page(kind: TargetKind, page_id: str) -> bool:
    rows = Page.objects.select_for_update(of=("self",), no_key=True)
    return kind == TargetKind.PAGE and rows.filter(pk=page_id).first() is not None


def domain_event(event: DomainEvent) -> None:
    if event.kind == TargetKind.PAGE:
        record_event_of(
            event.account_id, event.target_id, event.action, event.detail, actor=event.actor, origin=event.origin
        )
