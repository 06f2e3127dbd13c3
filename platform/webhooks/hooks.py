"""Hooks by which higher apps learn of changes of subscriptions (docs/architecture.md, Layers)."""

from __future__ import annotations

from common.hooks import Hook
from webhooks.models import AuditEntry, Subscription

# In the transaction of the change, for a webhook of one namespace only.
namespace_webhook_changed: Hook[[Subscription, AuditEntry], None] = Hook("webhook.namespace_webhook_changed")
