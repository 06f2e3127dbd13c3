"""Routes of the sandbox level, below `/s/<sandbox_id>/`."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path

from common.async_views import AsyncViewSet
from sandboxes.level.files.views import SandboxFilesViewSet, SandboxTransfersViewSet
from sandboxes.level.git.views import SandboxBranchesViewSet, SandboxCommitsViewSet, SandboxRepositoriesViewSet
from sandboxes.level.search.views import SandboxSearchViewSet
from sandboxes.level.terminal.views import SandboxCommandsViewSet
from sandboxes.level.terminal_page.views import TerminalPageFilesViewSet


def _route(address: str, view: type[AsyncViewSet], action: str = "", **actions: str) -> URLPattern:
    made: Any = view.as_view(actions or {"post": action})
    route: URLPattern = path(address, made)
    return route


urlpatterns: list[URLPattern] = [
    _route("files/list", SandboxFilesViewSet, "list"),
    _route("files/get", SandboxFilesViewSet, "read"),
    _route("files/create", SandboxFilesViewSet, "make"),
    _route("files/edit", SandboxFilesViewSet, "edit"),
    _route("files/delete", SandboxFilesViewSet, "remove"),
    _route("files/rename", SandboxFilesViewSet, "rename"),
    _route("files/exists", SandboxFilesViewSet, "exists"),
    _route("files/upload", SandboxTransfersViewSet, "upload"),
    _route("files/download", SandboxTransfersViewSet, "download"),
    _route("git/clone", SandboxRepositoriesViewSet, "clone"),
    _route("git/pull", SandboxRepositoriesViewSet, "pull"),
    _route("git/push", SandboxRepositoriesViewSet, "push"),
    _route("git/check", SandboxRepositoriesViewSet, "check"),
    _route("git/init", SandboxRepositoriesViewSet, "init"),
    _route("git/status", SandboxCommitsViewSet, "status"),
    _route("git/add", SandboxCommitsViewSet, "add"),
    _route("git/commit", SandboxCommitsViewSet, "commit"),
    _route("git/history", SandboxCommitsViewSet, "history"),
    _route("git/config/user", SandboxCommitsViewSet, "user"),
    _route("git/branch/list", SandboxBranchesViewSet, "list"),
    _route("git/branch/current", SandboxBranchesViewSet, "current"),
    _route("git/branch/create", SandboxBranchesViewSet, "make"),
    _route("git/branch/checkout", SandboxBranchesViewSet, "checkout"),
    _route("search", SandboxSearchViewSet, "search"),
    _route("search/filenames", SandboxSearchViewSet, "names"),
    _route("terminal", SandboxCommandsViewSet, post="run", get="page"),
    _route("terminal/<str:version>/<str:name>", TerminalPageFilesViewSet, get="read"),
]
