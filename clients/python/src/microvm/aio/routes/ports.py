"""Public ports of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.ports import PatchedChangePortRequest, PublicPortResponse, PublicPortsResponse, PublishRequest
from microvm.types.workspaces import PublicPort


class AsyncPortRoutes(AsyncGroup):
    """Public ports of a workspace."""

    async def list(self, workspace: str) -> PublicPortsResponse:
        """List the public ports and their addresses."""
        answer: PublicPortsResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/public-access")
        return answer

    async def publish(self, workspace: str, **body: Unpack[PublishRequest]) -> PublicPortResponse:
        """Publish a port. 200 if it is already published: its label and slug are changed."""
        answer: PublicPortResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/public-access", body=body, again=True
        )
        return answer

    async def change(self, workspace: str, port: int, **body: Unpack[PatchedChangePortRequest]) -> PublicPort:
        """Change the slug or the label of a public port. Another slug gives it another address, with the same hash."""
        answer: PublicPort = await self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}", body=body, part="port", again=True
        )
        return answer

    async def withdraw(self, workspace: str, port: int) -> None:
        """Unpublish a port and close its open connections."""
        await self._delete(f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}")
