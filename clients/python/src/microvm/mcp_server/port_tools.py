"""Tools for public ports and links to private ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.bounds import MOST_ROWS
from microvm.mcp_server.results import Done, PortLinkResult, PortLinks, PublicPortResult, PublicPorts
from microvm.mcp_server.tool_kinds import CHANGE, DESTROY, READ, ToolSet
from microvm.mcp_server.workspace_tools import Name

PortNumber = Annotated[int, Field(ge=1, le=65535, description="The port of a program in the workspace.")]
Label = Annotated[str | None, Field(description="What it is for.", max_length=64)]


def add_port_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = PortTools(client)
    tools.add(READ, found.list_public_ports)
    tools.add(CHANGE, found.publish_port)
    tools.add(DESTROY, found.withdraw_port)
    tools.add(READ, found.list_port_links)
    tools.add(CHANGE, found.create_port_link)
    tools.add(DESTROY, found.revoke_port_link)


class PortTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_public_ports(self, workspace: Name) -> PublicPorts:
        """List the public ports of a workspace with their addresses."""
        rows = (await self._client.ports.list(workspace))["public_ports"]
        found = [PublicPortResult.of(row) for row in rows[:MOST_ROWS]]
        return PublicPorts(ports=found, truncated=len(rows) > MOST_ROWS)

    async def publish_port(
        self,
        workspace: Name,
        port: PortNumber,
        label: Label = None,
        access: Annotated[
            Literal["public", "private"] | None,
            Field(description="private: visitors need a link. Without one a new port is public."),
        ] = None,
    ) -> PublicPortResult:
        """Give a port of a workspace a public address, which anyone who knows it can reach, unless it is private. Of a
        published port label and access are changed.
        """
        given: Any = ({"label": label} if label else {}) | ({"access": access} if access else {})
        return PublicPortResult.of((await self._client.ports.publish(workspace, port=port, **given))["public_port"])

    async def withdraw_port(self, workspace: Name, port: PortNumber) -> Done:
        """Take the public address of a port away; its open connections end."""
        await self._client.ports.withdraw(workspace, port)
        return Done(message=f"Port {port} of {workspace} is not public any more.")

    async def list_port_links(self, workspace: Name, port: PortNumber) -> PortLinks:
        """List the links that open a private port, without their addresses."""
        rows = await self._client.ports.links(workspace, port)
        return PortLinks(links=[PortLinkResult.of(row) for row in rows[:MOST_ROWS]], truncated=len(rows) > MOST_ROWS)

    async def create_port_link(
        self,
        workspace: Name,
        port: PortNumber,
        ttl_seconds: Annotated[int, Field(ge=60, le=604_800, description="How long it opens the port.")] = 86_400,
        label: Label = None,
    ) -> PortLinkResult:
        """Make a link to a private port. Its address opens the port for everyone who gets it, and is shown once."""
        given: Any = {"ttl_seconds": ttl_seconds} | ({"label": label} if label else {})
        return PortLinkResult.of(await self._client.ports.create_link(workspace, port, **given))

    async def revoke_port_link(
        self, workspace: Name, port: PortNumber, link: Annotated[str, Field(description="Its id.", max_length=64)]
    ) -> Done:
        """Revoke a link to a private port; open connections of the port end."""
        await self._client.ports.revoke_link(workspace, port, link)
        return Done(message=f"{link} opens port {port} of {workspace} no longer.")
