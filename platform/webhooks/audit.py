"""The audit log of webhooks."""

from __future__ import annotations

import logging

from common.request_origin import NO_ORIGIN, RequestOrigin
from webhooks.hooks import namespace_webhook_changed
from webhooks.models import AuditEntry, Subscription

logger = logging.getLogger(__name__)


def record_audit(
    subscription: Subscription, action: str, description: str = "", *, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> None:
    """Write the entry in the caller's transaction, also to the activity of the namespace that the webhook is for."""
    entry = AuditEntry.objects.create(
        account_id=subscription.account_id,
        subscription_id=subscription.pk,
        action=action,
        actor=actor[:160],
        description=description[:500],
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
    )
    if subscription.namespace_id:
        namespace_webhook_changed(subscription, entry)
    logger.info("%s %s by %s: %s", subscription.pk, action, actor, description)
