"""The details object (specification, Details object)."""

from __future__ import annotations

from typing import Any

from workspaces.metrics.selectors import stats_of
from workspaces.models import Workspace
from workspaces.representations import config_body, lifecycle_body


def details_body(row: Workspace, token: str) -> dict[str, Any]:
    """What details add, inside the workspace and beside it."""
    return {
        "token": token,
        "stats": stats_of(row),
        "ssh": {"ssh_enabled": row.ssh_enabled, "ssh_id": row.pk},
        "api_access": {"terminal": row.ready, "preview": row.public_access},
        "lifecycle": lifecycle_body(row),
        "config": config_body(row),
    }
