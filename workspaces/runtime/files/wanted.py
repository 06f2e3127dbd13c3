"""The part of a tree that a query asks for."""

from __future__ import annotations

from typing import Any

from vmbackend.guest.session import GuestSession
from workspaces.data_plane.files.services import MAX_DEPTH
from workspaces.runtime.files.chosen import Chooser
from workspaces.runtime.files.entries import Shown
from workspaces.runtime.files.trees import Wanted
from workspaces.runtime.home import home_directory


async def wanted_tree(session: GuestSession, query: dict[str, Any]) -> Wanted:
    """Return what the query asks for; without a path that of the home of commands."""
    path = query["path"] if "path" in query else await home_directory(session)
    light, nested, flatten = query["light"], query["nested"], query["flatten"]
    return Wanted(
        path=path,
        depth=query.get("max_depth", MAX_DEPTH if nested or flatten else 1),
        chooser=Chooser(
            root=path,
            path_filter=query["path_filter"],
            extensions=frozenset(query["include_ext"]),
            code_only=query["code_files_only"],
            with_folders=nested and not flatten,
        ),
        ignore=query["ignore_patterns"],
        gitignore=query["use_gitignore"],
        with_hashes=query["include_hash"] and not light,
        budget=query["max_content_budget"] if query["include_content"] and not light else 0,
    )


def shown_of(path: str, query: dict[str, Any]) -> Shown:
    """Return what the query wants to see of each entry."""
    return Shown(path, is_light=query["light"], with_extensions=query["include_extensions"])
