"""`/s/:id/search` and `/s/:id/search/filenames` (wire contract, section 4)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.async_threads import in_render_thread
from common.openapi import refused
from common.parsers import UnstoredObjectParser
from common.responses import respond
from sandboxes.level.base import SandboxLevelViewSet, SandboxRequest
from sandboxes.level.search.serializers import SandboxNamesResponse, SandboxSearchRequest, SandboxSearchResponse
from workspaces.data_plane.fields import path_fields
from workspaces.data_plane.search import services
from workspaces.data_plane.search.program import Selection
from workspaces.files.paths import displayed_path

# The first search of a machine brings the program there.
CALL_SECONDS = services.SEARCH_SECONDS + 60
REFUSED = refused(
    {
        400: "`validation_error`: an invalid path, expression or pattern",
        404: "`path_not_found`",
        409: "`vm_not_running`; `search_failed`: the sandbox does not have enough memory for the search",
    }
)


class SandboxSearchViewSet(SandboxLevelViewSet):
    """Texts and names in a sandbox's files."""

    parser_classes = [UnstoredObjectParser]

    @extend_schema(request=SandboxSearchRequest, responses={200: SandboxSearchResponse, **REFUSED})
    async def search(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Lines with a match in the files below a path, hidden and ignored ones included; one match for each line.

        Left out are binary files, those that cannot be read, other file systems, and, if a line is longer than the
        search's memory (some 100 MB), files above 64 MiB; symbolic links are not followed. The search ends at
        `maxResults`, or after 30 seconds with what was found.
        """
        data = await self.body(SandboxSearchRequest)
        guest = await self.guest()
        found = await guest.run(lambda session: services.text_search(session, **_arguments(data)), CALL_SECONDS)
        return await in_render_thread(lambda: respond(SandboxSearchResponse, **matched(found)))

    @extend_schema(request=SandboxSearchRequest, responses={200: SandboxNamesResponse, **REFUSED})
    async def names(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Files whose name has the text of the query; if it has a slash, or is a regular expression, whose path below
        `path` has it. Directories are not found; limits are those of a search in texts.
        """
        data = await self.body(SandboxSearchRequest)
        guest = await self.guest()
        found = await guest.run(lambda session: services.name_search(session, **_arguments(data)), CALL_SECONDS)
        root = found.root.rstrip("/")
        files = [displayed_path(f"{root}/{name}") for name in found.files]
        return await in_render_thread(
            lambda: respond(SandboxNamesResponse, files=files, total=len(files), **_ending(found))
        )


def _arguments(data: dict[str, Any]) -> dict[str, Any]:
    options = data["options"]
    return {
        "path": data["path"],
        "query": data["query"],
        "case_sensitive": options["caseSensitive"],
        "regex": options["regex"],
        "max_results": options["maxResults"],
        "selection": Selection(include=options["include"], exclude=options["exclude"]),
    }


def matched(found: services.TextFound) -> dict[str, Any]:
    """Return the body of a search. Ten thousand matches: made without a serializer's call for each field."""
    root = found.root.rstrip("/")
    matches = [
        {
            **path_fields(f"{root}/{match.file.removeprefix('./')}", "file"),
            "line": match.line,
            "column": match.column,
            "text": match.text,
        }
        for match in found.matches
    ]
    return {"matches": matches, "total": len(matches), **_ending(found)}


def _ending(found: services.TextFound | services.NamesFound) -> dict[str, Any]:
    return {"duration": found.duration_ms, "truncated": found.truncated, "timedOut": found.timed_out}
