"""The audit log: one message for each event of a workspace."""

from __future__ import annotations

from collections.abc import Sequence

from accounts.audit import audit_entry, record_entries, record_entry
from common.request_origin import RequestOrigin
from staff.subjects import Subject
from workspaces.models import Activity, Workspace


def record_activity(workspace: Workspace, action: str, detail: str = "", *, actor: str = "system") -> None:
    """Write the entry in the caller's transaction, and a log line."""
    record_activity_of(workspace.account_id, workspace.pk, action, detail, actor=actor)


def record_activity_of(account_id: str, workspace_id: str, action: str, detail: str, *, actor: str) -> None:
    """Do what `record_activity` does, for a workspace of which only the id is known."""
    record_entry(audit_entry(Activity, account_id, workspace_id, action, detail, actor=actor))


def record_reason(subject: Subject, text: str, actor: str, origin: RequestOrigin) -> None:
    """Record why staff acted on a workspace (`staff.hooks.reason_given`), in the transaction of the action."""
    if subject.workspace_id:
        record_activity_of(subject.account_id, subject.workspace_id, "staff_action", text, actor=actor)


def record_members(members: Sequence[tuple[str, str]], action: str, detail: str) -> None:
    """Write an entry for each workspace that something happened to together: its account's id and its own."""
    record_entries([audit_entry(Activity, account_id, key, action, detail) for account_id, key in members])


def record_moves(account_id: str, workspace_ids: Sequence[str], detail: str, *, actor: str) -> None:
    """Write an entry for each workspace that is moved to another namespace, in the caller's transaction."""
    record_entries([audit_entry(Activity, account_id, key, "moved", detail, actor=actor) for key in workspace_ids])
