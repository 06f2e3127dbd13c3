"""The audit log: one message for each event of a workspace."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from common.request_origin import RequestOrigin
from common.retention import rows_prune
from staff.subjects import Subject
from workspaces.models import Activity, Workspace

logger = logging.getLogger("workspaces.activity")


def record_activity(workspace: Workspace, event: str, detail: str = "", *, actor: str = "system") -> None:
    """Write the entry in the caller's transaction, and a log line."""
    record_activity_of(workspace.account_id, workspace.pk, event, detail, actor=actor)


def record_activity_of(account_id: str, workspace_id: str, event: str, detail: str, *, actor: str) -> None:
    """The same for a workspace of which only the id is known."""
    Activity.objects.create(
        account_id=account_id,
        workspace_id=workspace_id,
        event=event,
        actor=actor[:160],
        detail=detail[:500],
    )
    logger.info("%s %s by %s: %s", workspace_id, event, actor, detail)


def record_reason(subject: Subject, text: str, actor: str, origin: RequestOrigin) -> None:
    """Why staff acted on a workspace (`staff.hooks.reason_given`), in the transaction of the action."""
    if subject.workspace_id:
        record_activity_of(subject.account_id, subject.workspace_id, "staff_action", text, actor=actor)


def record_moves(account_id: str, workspace_ids: Sequence[str], detail: str, *, actor: str) -> None:
    """An entry for each workspace that is moved to another namespace, in the caller's transaction."""
    Activity.objects.bulk_create(
        [
            Activity(account_id=account_id, workspace_id=key, event="moved", actor=actor[:160], detail=detail[:500])
            for key in workspace_ids
        ],
        batch_size=500,
    )
    logger.info("%d workspaces moved by %s: %s", len(workspace_ids), actor, detail)


def activity_prune() -> int:
    """Remove entries that are older than PLATFORM_ACTIVITY_DAYS, some ten thousand at most. Returns how many."""
    return rows_prune(Activity, "at", timezone.now() - timedelta(days=settings.ENV.activity_days))
