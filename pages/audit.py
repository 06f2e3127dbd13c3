"""The audit log of pages: one entry for each event."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from common.request_origin import NO_ORIGIN, RequestOrigin
from common.retention import rows_prune
from pages.models import Page, PageEvent

logger = logging.getLogger("pages.activity")


def record_event(
    page: Page, action: str, detail: str = "", *, actor: str = "system", origin: RequestOrigin = NO_ORIGIN
) -> None:
    """Write the entry in the caller's transaction, and a log line."""
    record_event_of(page.account_id, page.pk, action, detail, actor=actor, origin=origin)


def record_event_of(
    account_id: str, page_id: str, action: str, detail: str, *, actor: str, origin: RequestOrigin
) -> None:
    """The same for a page of which only the id is known."""
    PageEvent.objects.create(
        account_id=account_id,
        page_id=page_id,
        action=action,
        detail=detail[:500],
        actor=actor[:160],
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
    )
    logger.info("%s %s by %s: %s", page_id, action, actor, detail)


def events_prune() -> int:
    """Remove entries that are older than PLATFORM_ACTIVITY_DAYS, some ten thousand at most. Returns how many."""
    return rows_prune(PageEvent, "created_at", timezone.now() - timedelta(days=settings.ENV.activity_days))
