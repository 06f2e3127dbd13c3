"""The activity log of namespaces."""

from __future__ import annotations

from typing import Any

from common.request_origin import NO_ORIGIN, RequestOrigin
from namespaces.models import Namespace, NamespaceActivity


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
    entry = activity_entry(namespace, action, description, actor=actor, changes=changes)
    entry.ip_address, entry.user_agent = origin.ip_address, origin.user_agent
    entry.save(force_insert=True)


def activity_entry(
    namespace: Namespace, action: str, description: str = "", *, actor: str, changes: dict[str, Any] | None = None
) -> NamespaceActivity:
    """The same, not written: for what the platform does itself to many namespaces at once."""
    return NamespaceActivity(
        account_id=namespace.account_id,
        namespace_id=namespace.pk,
        user_id=actor[:160],
        action=action,
        description=description[:500],
        changes=changes or {},
    )
