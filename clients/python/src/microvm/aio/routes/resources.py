"""Sizes of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.resources import PatchedResourcesRequest, ResourcesRequest, ResourcesUpdated, SavedResources


class AsyncResourceRoutes(AsyncGroup):
    """Sizes of a workspace."""

    async def get(self, workspace: str) -> SavedResources:
        """Return the saved sizes; `pending` lists those that apply at the next start."""
        answer: SavedResources = await self._call("GET", f"/workspace/{quoted(workspace)}/resources", part="resources")
        return answer

    async def update(self, workspace: str, **body: Unpack[ResourcesRequest]) -> ResourcesUpdated:
        """Save sizes for the next start; with `apply` a running workspace is relaunched with them."""
        answer: ResourcesUpdated = await self._call(
            "PUT", f"/workspace/{quoted(workspace)}/resources", body=body, timeout=LONG
        )
        return answer

    async def patch(self, workspace: str, **body: Unpack[PatchedResourcesRequest]) -> ResourcesUpdated:
        """Save sizes for the next start; with `apply` a running workspace is relaunched with them."""
        answer: ResourcesUpdated = await self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/resources", body=body, timeout=LONG
        )
        return answer
