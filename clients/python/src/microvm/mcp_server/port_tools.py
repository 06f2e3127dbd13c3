"""Tools for public ports."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.bounds import MOST_ROWS
from microvm.mcp_server.results import Done, PublicPortResult, PublicPorts
from microvm.mcp_server.tool_kinds import CHANGE, DESTROY, READ, ToolSet
from microvm.mcp_server.workspace_tools import Name

PortNumber = Annotated[int, Field(ge=1, le=65535, description="The port of a program in the workspace.")]


def add_port_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = PortTools(client)
    tools.add(READ, found.list_public_ports)
    tools.add(CHANGE, found.publish_port)
    tools.add(DESTROY, found.withdraw_port)


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
        label: Annotated[str | None, Field(description="What it is for.", max_length=64)] = None,
    ) -> PublicPortResult:
        """Give a port of a workspace a public address, which anyone who knows it can reach."""
        given: Any = {"label": label} if label else {}
        return PublicPortResult.of((await self._client.ports.publish(workspace, port=port, **given))["public_port"])

    async def withdraw_port(self, workspace: Name, port: PortNumber) -> Done:
        """Take the public address of a port away; its open connections end."""
        await self._client.ports.withdraw(workspace, port)
        return Done(message=f"Port {port} of {workspace} is not public any more.")
