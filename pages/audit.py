"""The audit log of pages: one entry for each event."""

from __future__ import annotations

from accounts.audit import audit_entry, record_entry
from common.request_origin import NO_ORIGIN, RequestOrigin
from pages.models import Page, PageEvent


def record_event(
    page: Page, action: str, detail: str = "", *, actor: str = "system", origin: RequestOrigin = NO_ORIGIN
) -> None:
    """Write the entry in the caller's transaction, and a log line."""
    record_event_of(page.account_id, page.pk, action, detail, actor=actor, origin=origin)


def record_event_of(
    account_id: str, page_id: str, action: str, detail: str, *, actor: str, origin: RequestOrigin
) -> None:
    """Do the same for a page of which only the id is known."""
    record_entry(audit_entry(PageEvent, account_id, page_id, action, detail, actor=actor, origin=origin))
