"""Snapshots of all workspaces.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.snapshots import PatchedChangeRequest
from microvm.types.workspaces import Snapshot


class AsyncSnapshotRoutes(AsyncGroup):
    """Snapshots of all workspaces."""

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
