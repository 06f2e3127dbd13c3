"""The id of a sandbox is that of its machine with another prefix: `sbx_x` is the sandbox of the workspace `ws_x`."""

from __future__ import annotations

SANDBOX, WORKSPACE = "sbx_", "ws_"


def sandbox_id_of(workspace_id: str) -> str:
    return SANDBOX + workspace_id.removeprefix(WORKSPACE)


def workspace_id_of(sandbox_id: str) -> str:
    """Return the id of the sandbox's workspace; empty for what is not a sandbox's id."""
    return WORKSPACE + sandbox_id.removeprefix(SANDBOX) if sandbox_id.startswith(SANDBOX) else ""
