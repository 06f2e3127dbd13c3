"""Columns that tables of several pages share: of operations, audit entries, ledgers, workspaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staff.parts.columns import (
    badge,
    bytes_text,
    change_url,
    credits_text,
    link,
    mebibytes_text,
    row_link,
    shortened,
    taken,
    time_text,
)

Columns = tuple[tuple[str, Callable[[Any], Any]], ...]

OPERATIONS: Columns = (
    ("Operation", lambda row: row_link(row, row.kind)),
    ("State", lambda row: badge(row.state)),
    ("Step", lambda row: row.step or "-"),
    ("Attempt", lambda row: row.attempt),
    ("By", lambda row: shortened(row.actor, 30)),
    ("Why", lambda row: shortened(row.error_message, 70)),
    ("Requested", lambda row: time_text(row.created_at)),
    ("Took", lambda row: taken(row.created_at, row.finished_at)),
)
ENTRIES: Columns = (
    ("When", lambda row: row_link(row, time_text(row.created_at))),
    ("Kind", lambda row: row.kind),
    ("Credits", lambda row: credits_text(row.amount)),
    ("Balance after", lambda row: credits_text(row.balance_after)),
    ("Workspace", lambda row: link(row.workspace_id, change_url("workspaces.Workspace", row.workspace_id))),
    ("For", lambda row: shortened(row.description, 60)),
)
WORKSPACES: Columns = (
    ("Name", lambda row: row_link(row, row.name)),
    ("Status", lambda row: badge(row.status, title=row.error_message)),
    ("Size", lambda row: f"{row.cpus} CPU, {mebibytes_text(row.memory_mb)}"),
    ("IP", lambda row: row.ip or "-"),
    ("Created", lambda row: time_text(row.created_at)),
)
SNAPSHOTS: Columns = (
    ("Name", lambda row: row_link(row, row.name or row.pk)),
    ("Status", lambda row: badge(row.status, title=row.error_message)),
    ("Purpose", lambda row: row.purpose),
    ("Memory", lambda row: "yes" if row.memory else "no"),
    ("Size", lambda row: bytes_text(row.size_bytes)),
    ("Created", lambda row: time_text(row.created_at)),
    ("Expires", lambda row: time_text(row.expires_at)),
    ("Deleted", lambda row: time_text(row.deleted_at)),
)
DEPLOYS: Columns = (
    ("Deploy", lambda row: row_link(row, row.pk)),
    ("State", lambda row: badge(row.state)),
    ("Step", lambda row: row.step or "-"),
    ("Release", lambda row: row.release or "-"),
    ("Why", lambda row: shortened(row.error_message, 70)),
    ("Requested", lambda row: time_text(row.created_at)),
    ("Took", lambda row: taken(row.created_at, row.finished_at)),
)
FILES: Columns = (
    ("File", lambda row: row_link(row, shortened(row.filename, 40))),
    ("Status", lambda row: badge(row.status)),
    ("Kind", lambda row: row.kind),
    ("Size", lambda row: bytes_text(row.size)),
    ("Created", lambda row: time_text(row.created_at)),
)
STAFF: Columns = (
    ("When", lambda row: time_text(row.at)),
    ("Who", lambda row: row.user_name),
    ("What", lambda row: row.action),
    ("Reason", lambda row: shortened(row.reason, 70)),
    ("Outcome", lambda row: badge(row.outcome)),
)


AUDIT: Columns = (
    ("When", lambda row: time_text(row.created_at)),
    ("What", lambda row: row.action),
    ("Who", lambda row: shortened(row.actor, 30)),
    ("Detail", lambda row: shortened(row.detail, 90) or "-"),
)
