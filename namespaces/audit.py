"""The activity log of namespaces."""

from __future__ import annotations

import json
from typing import Any

from common.request_origin import NO_ORIGIN, RequestOrigin
from namespaces.models import Namespace, NamespaceActivity

# Entries are kept for good; metadata have up to 64 KiB.
MAX_SHOWN = 1000


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
    NamespaceActivity.objects.create(
        account_id=namespace.account_id,
        namespace_id=namespace.pk,
        user_id=actor[:160],
        action=action,
        description=description[:500],
        changes=changes or {},
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
    )


def shown_value(value: Any) -> Any:
    """What `changes` show of a value: itself, or of one with more than MAX_SHOWN characters of JSON their number."""
    size = len(json.dumps(value))
    return value if size <= MAX_SHOWN else f"({size} characters)"
