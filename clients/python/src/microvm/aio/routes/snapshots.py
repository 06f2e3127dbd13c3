"""Snapshots of workspaces, restores and forks.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.snapshots import (
    ForkEntry,
    ForkRequest,
    PatchedChangeRequest,
    RestoreRequest,
    Snapshot,
    SnapshotRequest,
)
from microvm.types.workspaces import Workspace


class AsyncSnapshotRoutes(AsyncGroup):
    """Snapshots of workspaces, restores and forks."""

    async def create(self, workspace: str, **body: Unpack[SnapshotRequest]) -> Snapshot:
        """Keep disk and memory of the workspace, and wait until the snapshot is complete, at most
        `ready_timeout_seconds`; 202 if the wait ends first.
        """
        answer: Snapshot = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/snapshot", body=body, part="snapshot", timeout=LONG, keyed=True
        )
        return answer

    def of_workspace(
        self, workspace: str, *, search: str | None = None, page_size: int = 100
    ) -> AsyncIterator[Snapshot]:
        """List the snapshots of the workspace, newest first."""
        return self._pages(f"/workspace/{quoted(workspace)}/snapshots", "snapshots", {"search": search}, page_size)

    async def restore(self, workspace: str, **body: Unpack[RestoreRequest]) -> Workspace:
        """Put the workspace back to one of its snapshots; what was since is lost."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/restore", body=body, part="workspace", timeout=LONG
        )
        return answer

    async def fork(self, workspace: str, **body: Unpack[ForkRequest]) -> builtins.list[ForkEntry]:
        """Make copies of the workspace as it is now, and wait for them, at most `ready_timeout_seconds`."""
        answer: builtins.list[ForkEntry] = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/fork", body=body, part="forks", timeout=LONG, keyed=True
        )
        return answer

    def list(
        self,
        *,
        namespace: str | None = None,
        search: str | None = None,
        status: Literal["creating", "ready", "failed"] | None = None,
        workspace_id: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Snapshot]:
        """List snapshots, newest first."""
        return self._pages(
            "/snapshots",
            "snapshots",
            {"namespace": namespace, "search": search, "status": status, "workspace_id": workspace_id},
            page_size,
        )

    async def get(self, snapshot: str) -> Snapshot:
        """Return one snapshot by id."""
        answer: Snapshot = await self._call("GET", f"/snapshots/{quoted(snapshot)}", part="snapshot")
        return answer

    async def update(self, snapshot: str, **body: Unpack[PatchedChangeRequest]) -> Snapshot:
        """Change name and time to live."""
        answer: Snapshot = await self._call("PATCH", f"/snapshots/{quoted(snapshot)}", body=body, part="snapshot")
        return answer

    async def delete(self, snapshot: str) -> None:
        """Delete a snapshot, from every state. Workspaces that were made from it live on."""
        await self._delete(f"/snapshots/{quoted(snapshot)}")
