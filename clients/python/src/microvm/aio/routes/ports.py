"""Public ports of a workspace.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.ports import (
    LinkRequest,
    PatchedChangePortRequest,
    PortLink,
    PublicPortResponse,
    PublicPortsResponse,
    PublishRequest,
)
from microvm.types.workspaces import PublicPort


class AsyncPortRoutes(AsyncGroup):
    """Public ports of a workspace."""

    async def list(self, workspace: str) -> PublicPortsResponse:
        """List the public ports and their addresses."""
        answer: PublicPortsResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/public-access")
        return answer

    async def publish(self, workspace: str, **body: Unpack[PublishRequest]) -> PublicPortResponse:
        """Publish a port. 200 if it is already published: its label, slug and access are changed."""
        answer: PublicPortResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/public-access", body=body, again=True
        )
        return answer

    async def change(self, workspace: str, port: int, **body: Unpack[PatchedChangePortRequest]) -> PublicPort:
        """Change slug, label or access of a public port. Another slug gives it another address, with the same hash."""
        answer: PublicPort = await self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}", body=body, part="port", again=True
        )
        return answer

    async def withdraw(self, workspace: str, port: int) -> None:
        """Unpublish a port and close its open connections. Its links end."""
        await self._delete(f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}")

    async def links(self, workspace: str, port: int) -> builtins.list[PortLink]:
        """List the links that open the port, without their secrets."""
        answer: builtins.list[PortLink] = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}/links", part="links"
        )
        return answer

    async def create_link(self, workspace: str, port: int, **body: Unpack[LinkRequest]) -> PortLink:
        """Make a link to a private port. Its `url` is shown once."""
        answer: PortLink = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}/links", body=body, part="link"
        )
        return answer

    async def revoke_link(self, workspace: str, port: int, link: str) -> None:
        """Revoke a link. The port's open connections are closed; visitors who have another link come back."""
        await self._delete(f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}/links/{quoted(link)}")
