"""Tools for workloads: programs that go on without a call, and are started with the workspace."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.results import Done, WorkloadListing, WorkloadSummary
from microvm.mcp_server.tool_kinds import ADD, CHANGE, DESTROY, READ, ToolSet
from microvm.mcp_server.workspace_tools import Name, env_entries

WorkloadName = Annotated[str, Field(description="Of the workload.", min_length=1, max_length=64)]
Word = Annotated[str, Field(max_length=100_000)]


def add_workload_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = WorkloadTools(client)
    tools.add(READ, found.list_workloads)
    tools.add(ADD, found.add_workload)
    tools.add(CHANGE, found.start_workload)
    tools.add(DESTROY, found.stop_workload, found.remove_workload)


class WorkloadTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_workloads(self, workspace: Name) -> WorkloadListing:
        """List the programs that a workspace keeps running, with their states and exit codes."""
        rows = await self._client.workloads.list(workspace)
        return WorkloadListing(workloads=[WorkloadSummary.of(row) for row in rows])

    async def add_workload(
        self,
        *,
        workspace: Name,
        name: WorkloadName,
        command: Annotated[
            list[Word], Field(min_length=1, max_length=1000, description="Program and arguments, without a shell.")
        ],
        working_dir: Annotated[str | None, Field(description="Absolute path.")] = None,
        env: dict[str, str] | None = None,
        user: Annotated[str | None, Field(description="As whom it runs; else as the image says.")] = None,
        restart: Annotated[
            Literal["never", "on-failure", "always"], Field(description="When it is started again.")
        ] = "always",
    ) -> WorkloadSummary:
        """Start a program that lasts, as a server: it goes on after this call, and is started with the workspace.

        read_logs with its name as the source has its output.
        """
        body: dict[str, Any] = {"name": name, "cmd": command, "restart_policy": restart}
        body |= {key: value for key, value in (("working_dir", working_dir), ("user", user)) if value is not None}
        if env:
            body["env"] = env_entries(env)
        changed = await self._client.workloads.create(workspace, **body)
        return WorkloadSummary.of(changed["workload"], changed["problem"])

    async def start_workload(self, workspace: Name, name: WorkloadName) -> WorkloadSummary:
        """Start a workload that has ended or was stopped."""
        return WorkloadSummary.of(await self._client.workloads.start(workspace, name))

    async def stop_workload(self, workspace: Name, name: WorkloadName) -> WorkloadSummary:
        """End a workload until it is started again, or until the next start of the workspace."""
        return WorkloadSummary.of(await self._client.workloads.stop(workspace, name))

    async def remove_workload(self, workspace: Name, name: WorkloadName) -> Done:
        """End a workload and remove it; its log stays."""
        await self._client.workloads.delete(workspace, name)
        return Done(message=f"{name} is removed.")
