"""The activity log of namespaces."""

from __future__ import annotations

import json
from typing import Any

from accounts.audit import audit_entry, record_entry
from common.request_origin import NO_ORIGIN, RequestOrigin
from namespaces.models import Namespace, NamespaceActivity
from staff.subjects import Subject
from webhooks.models import AuditEntry, Subscription

# Entries are kept for long; metadata have up to 64 KiB.
MAX_SHOWN = 1000


def activity_entry(
    namespace: Namespace,
    action: str,
    detail: str = "",
    *,
    actor: str,
    origin: RequestOrigin = NO_ORIGIN,
    changes: dict[str, Any] | None = None,
) -> NamespaceActivity:
    """Return an entry that is not written yet. `changes`: field to `{from, to}`."""
    account_id, about = namespace.account_id, namespace.pk
    return audit_entry(
        NamespaceActivity, account_id, about, action, detail, actor=actor, origin=origin, changes=changes or {}
    )


def record_activity(
    namespace: Namespace,
    action: str,
    detail: str = "",
    *,
    actor: str,
    origin: RequestOrigin = NO_ORIGIN,
    changes: dict[str, Any] | None = None,
) -> None:
    """Write the entry in the caller's transaction, and a log line. `changes`: field to `{from, to}`."""
    record_entry(activity_entry(namespace, action, detail, actor=actor, origin=origin, changes=changes))


def record_webhook_entry(subscription: Subscription, entry: AuditEntry) -> None:
    """Record a change of a webhook in its namespace's activity, in the transaction of the change (`webhooks.hooks`)."""
    origin = RequestOrigin(entry.ip_address, entry.user_agent)
    about, detail = str(subscription.namespace_id), f"{subscription.pk}: {entry.detail}"
    copied = audit_entry(
        NamespaceActivity, entry.account_id, about, entry.action, detail, actor=entry.actor, origin=origin
    )
    record_entry(copied)


def record_reason(subject: Subject, text: str, actor: str, origin: RequestOrigin) -> None:
    """Record why staff acted on a namespace or on something in it (`staff.hooks.reason_given`), in the transaction of
    the action. A workspace has its own activity.

    If the action was on the account itself, or deleted the namespace, the entry is in the activity of the account's
    default namespace.
    """
    if subject.workspace_id or not subject.account_id:
        return
    of_account = Namespace.objects.filter(account_id=subject.account_id)
    found = (
        of_account.filter(pk=subject.namespace_id, deleted_at=None).first()
        or of_account.filter(is_default=True).first()
    )
    if found is not None:
        record_activity(found, "staff_action", text, actor=actor, origin=origin)


def shown_value(value: Any) -> Any:
    """Return a value as `changes` show it: the value, or its length if its JSON has more than MAX_SHOWN characters."""
    size = len(json.dumps(value))
    return value if size <= MAX_SHOWN else f"({size} characters)"
