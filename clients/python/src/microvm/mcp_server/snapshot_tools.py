"""Tools for snapshots, restores and forks."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.bounds import MOST_ROWS
from microvm.mcp_server.results import Done, WorkspaceSummary
from microvm.mcp_server.snapshot_results import Copies, SnapshotListing, SnapshotSummary
from microvm.mcp_server.tool_kinds import ADD, DESTROY, READ, ToolSet
from microvm.mcp_server.workspace_tools import Name, Permanent, SnapshotChoice, WithMemory, env_entries

MOST_COPIES = 16


def add_snapshot_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = SnapshotTools(client)
    tools.add(READ, found.list_snapshots)
    tools.add(ADD, found.create_snapshot, found.fork_workspace)
    tools.add(DESTROY, found.restore_workspace, found.delete_snapshot)


class SnapshotTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_snapshots(
        self,
        workspace: Annotated[str | None, Field(description="Only those of this one.", max_length=128)] = None,
        search: Annotated[str | None, Field(description="Only those with this text in the name.")] = None,
        limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 50,
    ) -> SnapshotListing:
        """List the snapshots of a workspace or of all, newest first."""
        size = min(limit + 1, 100)
        snapshots = self._client.snapshots
        listed = (
            snapshots.of_workspace(workspace, search=search, page_size=size)
            if workspace
            else snapshots.list(search=search, page_size=size)
        )
        rows: list[SnapshotSummary] = []
        async for row in listed:
            if len(rows) == limit:
                return SnapshotListing(snapshots=rows, truncated=True)
            rows.append(SnapshotSummary.of(row))
        return SnapshotListing(snapshots=rows, truncated=False)

    async def create_snapshot(
        self,
        workspace: Name,
        name: Annotated[
            str | None, Field(description="Its name; else one is made.", min_length=1, max_length=128)
        ] = None,
        memory: WithMemory = None,
        ttl: Annotated[str | None, Field(description="It is deleted after so long, as 7d; else it is kept.")] = None,
    ) -> SnapshotSummary:
        """Keep the disk and, unless it is stopped, the memory of a workspace, which goes on.

        restore_workspace goes back to it, create_workspace makes a new workspace from it.
        """
        body: Any = _given(name=name, memory=memory, ttl=ttl)
        return SnapshotSummary.of(await self._client.snapshots.create(workspace, **body))

    async def restore_workspace(
        self, workspace: Name, snapshot: SnapshotChoice = None, memory: WithMemory = None
    ) -> WorkspaceSummary:
        """Put a workspace back to one of its own snapshots, by default the newest one. What was since is lost."""
        body: Any = _given(snapshot=snapshot, memory=memory)
        return WorkspaceSummary.of(await self._client.snapshots.restore(workspace, **body))

    async def fork_workspace(
        self,
        *,
        workspace: Name,
        count: Annotated[int, Field(ge=1, le=MOST_COPIES)] = 1,
        name: Annotated[str | None, Field(description="With a number if several; else the parent's.")] = None,
        env: Annotated[dict[str, str] | None, Field(description="Added, for programs that are started later.")] = None,
        memory: WithMemory = None,
        permanent: Permanent = False,
    ) -> Copies:
        """Make copies of a workspace as it is now, and wait for them. Their programs go on; each copy has an address,
        keys and tokens of its own. The workspace itself goes on, too.
        """
        mode = "permanent" if permanent else None
        given = env_entries(env) if env else None
        body: Any = _given(count=count, name=name, env=given, memory=memory, mode=mode)
        return Copies.of(cast(list[Any], await self._client.snapshots.fork(workspace, **body)))

    async def delete_snapshot(
        self, snapshot: Annotated[str, Field(description="Its id.", min_length=1, max_length=128)]
    ) -> Done:
        """Delete a snapshot. Workspaces that were made from it live on."""
        await self._client.snapshots.delete(snapshot)
        return Done(message=f"{snapshot} is deleted.")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
