"""The activity log of namespaces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from common.request_origin import NO_ORIGIN, RequestOrigin
from common.retention import rows_prune
from namespaces.models import Namespace, NamespaceActivity
from staff.subjects import Subject
from webhooks.models import AuditEntry, Subscription

# Entries are kept for long; metadata have up to 64 KiB.
MAX_SHOWN = 1000


def activity_entry(
    namespace: Namespace,
    action: str,
    description: str = "",
    *,
    actor: str,
    origin: RequestOrigin = NO_ORIGIN,
    changes: dict[str, Any] | None = None,
) -> NamespaceActivity:
    """An entry that is not written yet. `changes`: field to `{from, to}`."""
    return NamespaceActivity(
        account_id=namespace.account_id,
        namespace_id=namespace.pk,
        user_id=actor[:160],
        action=action,
        description=description[:500],
        changes=changes or {},
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
    )


def record_activity(
    namespace: Namespace,
    action: str,
    description: str = "",
    *,
    actor: str,
    origin: RequestOrigin = NO_ORIGIN,
    changes: dict[str, Any] | None = None,
) -> None:
    """Write the entry in the caller's transaction. `changes`: field to `{from, to}`."""
    activity_entry(namespace, action, description, actor=actor, origin=origin, changes=changes).save(force_insert=True)


def record_entries(entries: Sequence[NamespaceActivity]) -> None:
    """Write entries of several namespaces in the caller's transaction."""
    NamespaceActivity.objects.bulk_create(entries)


def record_webhook_entry(subscription: Subscription, entry: AuditEntry) -> None:
    """What was done to a webhook of a namespace (`webhooks.hooks`), in the transaction of the change."""
    NamespaceActivity.objects.create(
        account_id=entry.account_id,
        namespace_id=subscription.namespace_id,
        user_id=entry.actor,
        action=entry.action,
        description=f"{subscription.pk}: {entry.description}"[:500],
        ip_address=entry.ip_address,
        user_agent=entry.user_agent,
    )


def record_reason(subject: Subject, text: str, actor: str, origin: RequestOrigin) -> None:
    """Why staff acted on a namespace or on what belongs to it, but for a workspace, which has its own activity
    (`staff.hooks.reason_given`); in the transaction of the action. What belongs to the account alone, or to a namespace
    that is deleted by it, is in the activity of the account's default namespace."""
    if subject.workspace_id or not subject.account_id:
        return
    of_account = Namespace.objects.filter(account_id=subject.account_id)
    found = (
        of_account.filter(pk=subject.namespace_id, deleted_at=None).first()
        or of_account.filter(is_default=True).first()
    )
    if found is not None:
        NamespaceActivity.objects.create(
            account_id=subject.account_id,
            namespace_id=found.pk,
            user_id=actor[:160],
            action="staff_action",
            description=text[:500],
            ip_address=origin.ip_address,
            user_agent=origin.user_agent,
        )


def activity_prune() -> int:
    """Remove entries that are older than PLATFORM_ACTIVITY_DAYS, some ten thousand at most. Returns how many."""
    return rows_prune(NamespaceActivity, "created_at", timezone.now() - timedelta(days=settings.ENV.activity_days))


def shown_value(value: Any) -> Any:
    """What `changes` show of a value: itself, or of one with more than MAX_SHOWN characters of JSON their number."""
    size = len(json.dumps(value))
    return value if size <= MAX_SHOWN else f"({size} characters)"
