"""Audit log of the CDN: one entry for each event of a file or a limit."""

from __future__ import annotations

from accounts.audit import audit_entry, record_entry
from cdn.models import FileEvent
from common.request_origin import NO_ORIGIN, RequestOrigin


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
    record_entry(audit_entry(FileEvent, account_id, file_id, action, detail, actor=actor, origin=origin))
