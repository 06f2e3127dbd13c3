"""The audit log of send tokens and devices. It never holds a token, an endpoint or a key."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from common.request_origin import NO_ORIGIN, RequestOrigin
from common.retention import rows_prune
from notifications.models import Device, NotificationEvent, SendToken

logger = logging.getLogger("notifications.activity")


def record_token(token: SendToken, action: str, *, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Write the entry in the caller's transaction, and a log line."""
    _record(token.account_id, f"token {token.pk}", action, actor, detail=f"of {token.workspace_id}", origin=origin)


def record_device(
    device: Device, action: str, detail: str = "", *, actor: str = "system", origin: RequestOrigin = NO_ORIGIN
) -> None:
    """The same for a device."""
    _record(device.account_id, f"device {device.device_id}", action, actor, detail=detail, origin=origin)


def _record(account_id: str, subject: str, action: str, actor: str, *, detail: str, origin: RequestOrigin) -> None:
    NotificationEvent.objects.create(
        account_id=account_id,
        subject=subject[:160],
        action=action,
        actor=actor[:160],
        detail=detail[:300],
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
    )
    logger.info("%s of %s %s by %s", subject, account_id, action, actor)


def events_prune() -> int:
    """Remove entries that are older than PLATFORM_ACTIVITY_DAYS, some ten thousand at most. Returns how many."""
    until = timezone.now() - timedelta(days=settings.ENV.activity_days)
    return rows_prune(NotificationEvent, "created_at", until)
