"""The audit log: one message for each event of a workspace."""

from __future__ import annotations

import logging

from workspaces.models import Activity, Workspace

logger = logging.getLogger("workspaces.activity")


def record_activity(workspace: Workspace, event: str, detail: str = "", *, actor: str = "system") -> None:
    """Write the entry in the caller's transaction, and a log line."""
    Activity.objects.create(
        account_id=workspace.account_id,
        workspace_id=workspace.pk,
        event=event,
        actor=actor[:160],
        detail=detail[:500],
    )
    logger.info("%s %s by %s: %s", workspace.pk, event, actor, detail)
