"""Keys and values that are stored with a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Any, Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.metadata import MetadataRequest, PatchedMetadataRequest


class AsyncMetadataRoutes(AsyncGroup):
    """Keys and values that are stored with a workspace."""

    async def get(self, workspace: str) -> dict[str, Any]:
        """Return the whole object."""
        answer: dict[str, Any] = await self._call("GET", f"/workspace/{quoted(workspace)}/metadata", part="metadata")
        return answer

    async def update(self, workspace: str, **body: Unpack[MetadataRequest]) -> dict[str, Any]:
        """Overwrite the given keys, add new ones, leave the others. A key set to null is stored as null."""
        answer: dict[str, Any] = await self._call(
            "PUT", f"/workspace/{quoted(workspace)}/metadata", body=body, part="metadata"
        )
        return answer

    async def patch(self, workspace: str, **body: Unpack[PatchedMetadataRequest]) -> dict[str, Any]:
        """Overwrite the given keys, add new ones, leave the others. A key set to null is stored as null."""
        answer: dict[str, Any] = await self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/metadata", body=body, part="metadata", again=True
        )
        return answer
