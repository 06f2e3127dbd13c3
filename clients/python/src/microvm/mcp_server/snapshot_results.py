"""Results of the tools for snapshots and forks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from microvm.mcp_server.results import WorkspaceSummary, bounded_error


class SnapshotSummary(BaseModel):
    """One snapshot."""

    id: str
    name: str
    workspace_id: str | None = Field(description="Null: the workspace was deleted.")
    status: str
    memory: bool = Field(description="Whether programs go on from it; else it has only the disk.")
    size_bytes: int
    usable: bool = Field(description="Whether its memory can be loaded; the disk always can.")
    unusable_reason: str | None
    error: str | None = Field(description="Why it failed.")
    created_at: str
    expires_at: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> SnapshotSummary:
        """Return the summary of a snapshot object."""
        fields = {name: row[name] for name in cls.model_fields if name != "error"}
        return cls(**fields, error=bounded_error(row["error"]))


class SnapshotListing(BaseModel):
    """Snapshots, newest first."""

    snapshots: list[SnapshotSummary]
    truncated: bool = Field(description="There are more; narrow the search.")


class FailedCopy(BaseModel):
    """A copy that was not made."""

    workspace_id: str | None = Field(description="What is left of it, to be deleted.")
    code: str
    message: str | None


class Copies(BaseModel):
    """The copies of a workspace, in order, and those that were not made."""

    workspaces: list[WorkspaceSummary]
    failed: list[FailedCopy]

    @classmethod
    def of(cls, entries: list[Any]) -> Copies:
        """Return the summary of the entries of a fork."""
        made = [WorkspaceSummary.of(entry["workspace"]) for entry in entries if "error" not in entry]
        return cls(workspaces=made, failed=[_failed(entry["error"]) for entry in entries if "error" in entry])


def _failed(error: Mapping[str, Any]) -> FailedCopy:
    left = (error.get("details") or {}).get("id")
    return FailedCopy(workspace_id=left, code=error["code"], message=bounded_error(error))
