"""Webhooks as rows, and what was published to them."""

from __future__ import annotations

from typing import Any

from accounts.models import Account
from webhooks.models import Event, Subscription


def subscribe(account: Account, *events: str, **fields: Any) -> Subscription:
    """A webhook of these events, default: of all."""
    values = {"url": "https://hooks.example.com/", "host": "hooks.example.com", "secret": "whsec_c2VjcmV0", **fields}
    return Subscription.objects.create(account=account, events=list(events) or ["*"], **values)


def published(account: Account, *types: str) -> list[tuple[str, Any]]:
    """Type and data of the account's events, default: of all, in their order."""
    rows = Event.objects.filter(account=account).order_by("created_at")
    return [(row.type, row.data) for row in (rows.filter(type__in=types) if types else rows)]


def passed_thresholds(account: Account) -> list[Any]:
    """The thresholds that were published, and `depleted`, in their order."""
    rows = published(account, "namespace.quota.threshold", "credits.depleted")
    return [data.get("threshold", "depleted") for _, data in rows]
