"""The audit log of the CDN: one entry for each event of a file or a limit."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from cdn.models import FileEvent
from common.request_origin import NO_ORIGIN, RequestOrigin
from common.retention import rows_prune

logger = logging.getLogger("cdn.activity")


def record_event(
    account_id: str,
    action: str,
    detail: str = "",
    *,
    file_id: str = "",
    actor: str = "system",
    origin: RequestOrigin = NO_ORIGIN,
) -> None:
    """Write the entry in the caller's transaction, and a log line."""
    FileEvent.objects.create(
        account_id=account_id,
        file_id=file_id,
        action=action,
        detail=detail[:500],
        actor=actor[:160],
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
    )
    logger.info("%s %s by %s: %s", file_id or account_id, action, actor, detail)


def events_prune() -> int:
    """Remove entries that are older than PLATFORM_ACTIVITY_DAYS, some ten thousand at most. Returns how many."""
    return rows_prune(FileEvent, "created_at", timezone.now() - timedelta(days=settings.ENV.activity_days))
