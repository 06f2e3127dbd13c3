"""`{url}/files/search...` (wire contract, section 4b)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.async_threads import in_render_thread
from common.openapi import refused
from common.responses import respond
from vmbackend.guest.session import GuestSession, SearchTools
from workspaces.data_plane.search import services
from workspaces.data_plane.search.program import Match, Selection
from workspaces.files.paths import displayed_path
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.home import home_directory
from workspaces.runtime.query_fields import read_query
from workspaces.runtime.search import serializers as s
from workspaces.runtime.search_errors import parameters_named

# The first search of a machine brings the program there.
BRING_SECONDS = 60.0
VERSION_SECONDS = 10.0
REFUSED = refused(
    {
        400: "`validation_error`: an invalid path, expression or pattern, which is named",
        404: "`path_not_found`",
        409: "`vm_not_running`; `search_failed`: the machine does not have enough memory for the search",
    }
)
RUNNING = refused({409: "`vm_not_running`"})


class RuntimeSearchViewSet(RuntimeViewSet):
    """Texts and names in a workspace's files."""

    @extend_schema(parameters=[s.RuntimeSearchQuery], responses={200: s.RuntimeSearchResponse, **REFUSED})
    async def search(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Lines with a match in the files below a path, one match for each line.

        Left out are binary files, those that cannot be read or that git ignores, hidden ones, other file systems, and,
        if a line is longer than the search's memory (some 100 MB), files above 64 MiB; symbolic links are not
        followed. The search ends at `max_results`, or at its timeout with what was found.
        """
        query = read_query(s.RuntimeSearchQuery, self.http_request)
        guest = await self.guest()
        seconds = query["timeout"] + BRING_SECONDS
        with parameters_named():
            path, found = await guest.run(lambda session: _search(session, query), seconds)
        return await in_render_thread(lambda: respond(s.RuntimeSearchResponse, **matched(path, query, found)))

    @extend_schema(parameters=[s.RuntimeNamesQuery], responses={200: s.RuntimeNamesResponse, **REFUSED})
    async def names(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Files whose name has the text of the query; if it has a slash, whose path below `path` has it.

        Directories are not found; files that git ignores are. The search ends after 30 seconds with what was found.
        """
        query = read_query(s.RuntimeNamesQuery, self.http_request)
        guest = await self.guest()
        seconds = services.SEARCH_SECONDS + BRING_SECONDS
        with parameters_named():
            path, found = await guest.run(lambda session: _names(session, query), seconds)
        root = found.root.rstrip("/")
        files = [displayed_path(f"{root}/{name}") for name in found.files]
        body = {**_about(path, query, found), "files": files, "total_files": len(files)}
        return await in_render_thread(lambda: respond(s.RuntimeNamesResponse, **body))

    @extend_schema(responses={200: s.RuntimeSearchProgram, **RUNNING})
    async def look(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Whether the machine has the search program. Nothing is brought there."""
        guest = await self.guest()
        found = await guest.run(_look, BRING_SECONDS)
        return respond(s.RuntimeSearchProgram, **found)

    @extend_schema(
        request=None,
        responses={200: s.RuntimeSearchProgram, **refused({409: "`vm_not_running`, `guest_disk_full`: no memory"})},
    )
    async def install(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Bring the search program into the machine's memory, as the first search does. Idempotent."""
        guest = await self.guest()
        found = await guest.run(_install, BRING_SECONDS)
        return respond(s.RuntimeSearchProgram, **found)


async def _search(session: GuestSession, query: Mapping[str, Any]) -> tuple[str, services.TextFound]:
    path = query["path"] if "path" in query else await home_directory(session)
    found = await services.text_search(
        session,
        path=path,
        query=query["q"],
        case_sensitive=query["case_sensitive"],
        regex=query["regex"],
        max_results=query["max_results"],
        whole_word=query["whole_word"],
        context=query["context_lines"],
        seconds=query["timeout"],
        selection=Selection(
            exclude=query["ignore_patterns"],
            gitignore=not query["no_gitignore"],
            hidden=query["include_hidden"],
            extensions=query["file_types"],
        ),
    )
    return path, found


async def _names(session: GuestSession, query: Mapping[str, Any]) -> tuple[str, services.NamesFound]:
    path = query["path"] if "path" in query else await home_directory(session)
    found = await services.name_search(
        session,
        path=path,
        query=query["q"],
        case_sensitive=query["case_sensitive"],
        regex=False,
        max_results=query["max_results"],
        selection=Selection(exclude=query["ignore_patterns"], hidden=query["include_hidden"]),
    )
    return path, found


async def _look(session: GuestSession) -> dict[str, Any]:
    return await _described(session, await session.find_search_tools())


async def _install(session: GuestSession) -> dict[str, Any]:
    return await _described(session, await session.search_tools(again=True))


async def _described(session: GuestSession, tools: SearchTools | None) -> dict[str, Any]:
    if tools is None:
        return {"installed": False, "path": None, "version": None}
    said = (await session.execute([*tools.program, "--version"], timeout=VERSION_SECONDS)).stdout
    version = re.match(rb"ripgrep ([0-9.]{1,20})", said)
    return {"installed": True, "path": tools.program[-1], "version": version[1].decode() if version else None}


def matched(path: str, query: Mapping[str, Any], found: services.TextFound) -> dict[str, Any]:
    """Return the body of a search. Made without a serializer's call for each field."""
    root, results = found.root.rstrip("/"), dict[str, list[dict[str, Any]]]()
    for match in found.matches:
        file = displayed_path(f"{root}/{match.file.removeprefix('./')}")
        results.setdefault(file, []).append(_match(match, found, query["context_lines"]))
    return {
        **_about(path, query, found),
        "results": results,
        "total_matches": len(found.matches),
        "total_files": len(results),
    }


def _match(match: Match, found: services.TextFound, context: int) -> dict[str, Any]:
    body: dict[str, Any] = {"line": match.line, "column": match.column, "text": match.text}
    if not context:
        return body
    before, after = range(match.line - context, match.line), range(match.line + 1, match.line + context + 1)
    for name, lines in (("before", before), ("after", after)):
        body[name] = [found.around[match.file, line] for line in lines if (match.file, line) in found.around]
    return body


def _about(path: str, query: Mapping[str, Any], found: services.TextFound | services.NamesFound) -> dict[str, Any]:
    return {"query": query["q"], "path": displayed_path(path), "capped": found.truncated}
