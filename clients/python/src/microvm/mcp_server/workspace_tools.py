"""Tools for workspaces: creation, sizes, power."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, cast

from mcp.server.mcpserver import Context
from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.errors import WaitTimeout
from microvm.mcp_server.bounds import MOST_ROWS
from microvm.mcp_server.results import Done, WorkspaceListing, WorkspaceSummary
from microvm.mcp_server.tool_kinds import ADD, CHANGE, DESTROY, READ, RUN, ToolSet
from microvm.types.workspaces import CreateRequest, Provisioning

MOST_MEGABYTES = 10**9
Name = Annotated[str, Field(description="Id or slug of the workspace.", min_length=1, max_length=128)]
Cpus = Annotated[float | None, Field(gt=0, le=1000, allow_inf_nan=False)]
Megabytes = Annotated[int | None, Field(gt=0, le=MOST_MEGABYTES)]
SnapshotChoice = Annotated[str | None, Field(description="A snapshot, by id or name.", min_length=1, max_length=128)]
WithMemory = Annotated[
    bool | None,
    Field(description="True: its programs go on from memory. False: it boots from the disk. Else what there is."),
]
Permanent = Annotated[bool, Field(description="Keep it until it is deleted; else it has a limited life.")]


def add_workspace_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = WorkspaceTools(client)
    tools.add(READ, found.list_workspaces, found.show_workspace)
    tools.add(ADD, found.create_workspace)
    tools.add(CHANGE, found.start_workspace, found.wake_workspace)
    tools.add(DESTROY, found.stop_workspace, found.sleep_workspace, found.delete_workspace, found.resize_workspace)
    tools.add(RUN, found.restart_workspace)


def env_entries(env: Mapping[str, str]) -> list[dict[str, str]]:
    """Return variables as the API takes them."""
    return [{"key": key, "value": value} for key, value in env.items()]


class ProgressReports:
    """Says how far a creation is while it goes on. In the protocol each number is larger than the one before."""

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context
        self._last = -1
        self._sent: list[asyncio.Task[None]] = []

    def report(self, state: Provisioning) -> None:
        if state["progress"] > self._last:
            self._last = state["progress"]
            report = self._context.report_progress(self._last, 100, state["message"])
            self._sent.append(asyncio.create_task(report))

    async def finish(self) -> None:
        """A client that takes no reports fails no creation."""
        await asyncio.gather(*self._sent, return_exceptions=True)


class WorkspaceTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_workspaces(
        self,
        status: Annotated[str | None, Field(description="Only those in this state, as running or stopped.")] = None,
        search: Annotated[str | None, Field(description="Only those with this text in name or slug.")] = None,
        limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 50,
    ) -> WorkspaceListing:
        """List workspaces (micro-VMs) of the account, newest first."""
        rows: list[WorkspaceSummary] = []
        async for row in self._client.workspaces.list(
            status=cast(Any, status), search=search, page_size=min(limit + 1, 100)
        ):
            if len(rows) == limit:
                return WorkspaceListing(workspaces=rows, truncated=True)
            rows.append(WorkspaceSummary.of(row))
        return WorkspaceListing(workspaces=rows, truncated=False)

    async def show_workspace(self, workspace: Name) -> WorkspaceSummary:
        """Show one workspace: its state, sizes, error and public addresses."""
        return WorkspaceSummary.of(await self._client.workspaces.get(workspace))

    async def create_workspace(
        self,
        *,
        context: Context[Any, Any],
        name: Annotated[str | None, Field(description="Its name; the slug is made of it.", max_length=255)] = None,
        image: Annotated[str | None, Field(description="Image of the catalog or a registry; else the default.")] = None,
        cpus: Cpus = None,
        memory_mb: Megabytes = None,
        disk_size_mb: Megabytes = None,
        env: Annotated[dict[str, str] | None, Field(description="Environment of its programs.")] = None,
        snapshot: SnapshotChoice = None,
        memory: WithMemory = None,
        permanent: Permanent = False,
        wait_seconds: Annotated[
            float, Field(ge=0, le=600, allow_inf_nan=False, description="How long to wait until it runs.")
        ] = 300,
    ) -> WorkspaceSummary:
        """Create a workspace, a virtual machine from a container image or a snapshot, and wait until it runs.

        Where `ready` is false in the answer it is still being created: look again with show_workspace.
        """
        sizes = {"cpus": cpus, "memory_mb": memory_mb, "disk_size_mb": disk_size_mb}
        config: dict[str, Any] = {key: value for key, value in sizes.items() if value is not None}
        if env:
            config["env"] = env_entries(env)
        mode = "permanent" if permanent else None
        body: dict[str, Any] = {"name": name, "image": image, "config": config or None, "mode": mode}
        body |= {"snapshot": snapshot, "memory": memory}
        given = cast(CreateRequest, {key: value for key, value in body.items() if value is not None})
        made = await self._client.workspaces.create(**given)
        reports = ProgressReports(context)
        try:
            made = await self._client.workspaces.wait_until_ready(
                made["id"], timeout=wait_seconds, progress=reports.report
            )
        except WaitTimeout:
            made = await self._client.workspaces.get(made["id"])
        finally:
            await reports.finish()
        return WorkspaceSummary.of(made)

    async def resize_workspace(
        self, workspace: Name, cpus: Cpus = None, memory_mb: Megabytes = None, disk_size_mb: Megabytes = None
    ) -> WorkspaceSummary:
        """Change the sizes of a workspace. One that runs is restarted where it must be: its programs and memory are
        lost then. A disk never shrinks.
        """
        sizes = {"cpus": cpus, "memory_mb": memory_mb, "disk_size_mb": disk_size_mb}
        given: Any = {key: value for key, value in sizes.items() if value is not None}
        if not given:
            raise ValueError("Give at least one of cpus, memory_mb and disk_size_mb.")
        await self._client.resources.patch(workspace, **given)
        return WorkspaceSummary.of(await self._client.workspaces.get(workspace))

    async def start_workspace(self, workspace: Name) -> WorkspaceSummary:
        """Start a stopped workspace; a paused one goes on, a sleeping one wakes."""
        return WorkspaceSummary.of(await self._client.workspaces.start(workspace))

    async def stop_workspace(self, workspace: Name) -> WorkspaceSummary:
        """Shut a workspace down. Its files are kept; its programs and memory are not."""
        return WorkspaceSummary.of(await self._client.workspaces.stop(workspace))

    async def restart_workspace(self, workspace: Name) -> WorkspaceSummary:
        """Shut a workspace down and start it again. Its programs and memory are lost."""
        return WorkspaceSummary.of(await self._client.workspaces.restart(workspace))

    async def sleep_workspace(self, workspace: Name) -> WorkspaceSummary:
        """Put a running workspace to sleep. Its memory is kept on disk, its programs stand still until it wakes."""
        return WorkspaceSummary.of(await self._client.workspaces.sleep(workspace))

    async def wake_workspace(self, workspace: Name) -> WorkspaceSummary:
        """Wake a sleeping workspace, or let a paused one go on: its programs go on where they were."""
        return WorkspaceSummary.of(await self._client.workspaces.resume(workspace))

    async def delete_workspace(self, workspace: Name) -> Done:
        """Delete a workspace with all its files and snapshots. This cannot be undone."""
        await self._client.workspaces.delete(workspace)
        return Done(message=f"{workspace} is deleted.")
