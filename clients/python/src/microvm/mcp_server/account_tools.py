"""Tools for the catalog of images, the plan and what was used."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.bounds import MOST_ROWS, ListRoom, bounded_text
from microvm.mcp_server.results import Images, ImageSummary, PlanSummary, Sizes, Usage
from microvm.mcp_server.tool_kinds import READ, ToolSet

MOST_DESCRIPTION = 300  # characters


def add_account_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = AccountTools(client)
    tools.add(READ, found.list_images, found.show_plan, found.show_usage)


class AccountTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_images(self) -> Images:
        """List the images of the catalog, with the sizes that suit them. create_workspace also takes images of public
        registries.
        """
        rows, found = (await self._client.images.list())["images"], []
        room = ListRoom()
        for row in rows[:MOST_ROWS]:
            text = bounded_text(row["desc"], MOST_DESCRIPTION)[0]
            if not room.has_room_for(row["image"], row["label"], text):
                break
            sizes: Any = row["vm_defaults"]
            found.append(
                ImageSummary(
                    image=row["image"],
                    preset=row["preset"],
                    label=row["label"],
                    description=text,
                    memory_mb=sizes.get("memory_mb"),
                    disk_size_mb=sizes.get("disk_size_mb"),
                )
            )
        return Images(images=found, truncated=len(found) < len(rows))

    async def show_plan(self) -> PlanSummary:
        """Show how many workspaces of which sizes the account may have, and has."""
        row = await self._client.quota.get()
        return PlanSummary(
            plan=row["planLabel"],
            workspaces=row["currentSandboxes"],
            most_workspaces=row["maxSandboxes"],
            can_create=row["canCreate"],
            reason=row["reason"],
            limits_of_one=Sizes.model_validate(row["limits"]),
            limits_of_all=Sizes.model_validate(row["pool"]),
            owned=Sizes.model_validate(row["pool_usage"]),
            limits_of_running=Sizes.model_validate(row["running_pool"]),
            running=Sizes.model_validate(row["running_pool_usage"]),
        )

    async def show_usage(
        self,
        workspace: Annotated[str | None, Field(description="Only of this one; else of all.", max_length=128)] = None,
    ) -> Usage:
        """Show what workspaces have used since their creation: CPU time, disk, network."""
        if workspace:
            return Usage.of(await self._client.usage.totals(workspace))
        return Usage.of((await self._client.usage.all())["total"])
