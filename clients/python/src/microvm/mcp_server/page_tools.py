"""Tools for static pages."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.errors import NotFound
from microvm.mcp_server.bounds import MOST_ROWS, bounded_text
from microvm.mcp_server.results import Pages, PageSummary, Releases, ReleaseSummary
from microvm.mcp_server.tool_kinds import CHANGE, DESTROY, READ, ToolSet
from microvm.types.pages import DeployedPageResponse

Slug = Annotated[str, Field(description="Slug of the page.", min_length=1, max_length=128)]
MOST_SKIPPED = 50
MOST_PATH = 300  # characters


def add_page_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = PageTools(client)
    tools.add(READ, found.list_pages, found.list_page_releases)
    tools.add(DESTROY, found.deploy_page)
    tools.add(CHANGE, found.roll_back_page)


class PageTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_pages(self) -> Pages:
        """List static pages with their addresses, newest first."""
        rows = await self._client.pages.list()
        return Pages(pages=[PageSummary.of(row) for row in rows[:MOST_ROWS]], truncated=len(rows) > MOST_ROWS)

    async def deploy_page(
        self,
        page: Slug,
        workspace: Annotated[str | None, Field(description="Id or slug of the workspace with the folder.")] = None,
        folder: Annotated[str | None, Field(description="Absolute path of the folder.", pattern="^/")] = None,
    ) -> PageSummary:
        """Serve a folder of a running workspace as a static page at a public address.

        Makes the page where there is none of this slug, else makes a new release of it; earlier releases are kept for
        roll_back_page. Without workspace and folder those of the live release are taken.
        """
        if (workspace is None) != (folder is None):
            raise ToolError("Give both a workspace and a folder, or neither of them.")
        body: Any = {"workspace_id": workspace, "path": folder} if workspace else {}
        try:
            answer = await self._client.pages.deploy(page, **body)
        except NotFound as error:
            if error.code != "not_found" or not body:
                raise
            return PageSummary.of(await self._client.pages.create(slug=page, name=page, **body))
        return PageSummary.of(answer["page"], _skipped(answer))

    async def list_page_releases(self, page: Slug) -> Releases:
        """List the kept releases of a page, newest first."""
        rows = await self._client.pages.releases(page)
        names = ReleaseSummary.model_fields
        found = [ReleaseSummary.model_validate({name: row[name] for name in names}) for row in rows[:MOST_ROWS]]  # type: ignore[literal-required]
        return Releases(releases=found, truncated=len(rows) > MOST_ROWS)

    async def roll_back_page(self, page: Slug, release: Annotated[int, Field(ge=1)]) -> PageSummary:
        """Serve an earlier, or later, release of a page."""
        return PageSummary.of(await self._client.pages.rollback(page, release=release))


def _skipped(answer: DeployedPageResponse) -> list[str]:
    """Return a line for each file that was left out; the last one says how many more there are."""
    entries = answer.get("skipped", [])
    shown = [f"{bounded_text(each['path'], MOST_PATH)[0]}: {each['reason']}" for each in entries[:MOST_SKIPPED]]
    more = max(answer.get("skipped_count", 0), len(entries)) - len(shown)
    return [*shown, f"{more} more were left out."] if more > 0 else shown
