"""The audit log of webhooks."""

from __future__ import annotations

from accounts.audit import audit_entry, record_entry
from common.request_origin import NO_ORIGIN, RequestOrigin
from webhooks.hooks import namespace_webhook_changed
from webhooks.models import AuditEntry, Subscription


def record_audit(
    subscription: Subscription, action: str, detail: str = "", *, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> None:
    """Write the entry in the caller's transaction, also to the activity of the namespace that the webhook is for."""
    account_id, about = subscription.account_id, subscription.pk
    entry = record_entry(audit_entry(AuditEntry, account_id, about, action, detail, actor=actor, origin=origin))
    if subscription.namespace_id:
        namespace_webhook_changed(subscription, entry)
