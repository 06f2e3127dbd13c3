"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from vmbackend.driver import WorkloadRestart

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "WorkspaceStatus": "workspaces.states.Status",
    "RestartPolicy": "workspaces.models.workspace.RestartPolicy",
    "WorkloadRestart": [(policy.value, policy.value) for policy in WorkloadRestart],
}
