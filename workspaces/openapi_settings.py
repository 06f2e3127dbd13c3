"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from vmbackend.driver import WorkloadRestart

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "WorkspaceStatus": "workspaces.states.Status",
    "RestartPolicy": "workspaces.models.workspace.RestartPolicy",
    # As workspaces.commands.output has them.
    "TextEncoding": [("utf-8", "utf-8"), ("base64", "base64")],
    "WorkloadRestart": [(policy.value, policy.value) for policy in WorkloadRestart],
}
