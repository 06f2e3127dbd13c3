"""Routes of the runtime, below `/r/`, and below the address of a workspace where each has its own.

Every route is also below `runtimes/default/` and `runtimes/local/`, as existing clients have it.
"""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, register_converter

# Registers itself; with the routes, as a process without them needs no description of them.
from workspaces.runtime import openapi  # noqa: F401
from workspaces.runtime.files.views import RuntimeFilesViewSet
from workspaces.runtime.information import InformationViewSet
from workspaces.runtime.links.views import FileLinksViewSet, LinkedFileViewSet
from workspaces.runtime.proxy.views import METHODS, ProxyViewSet
from workspaces.runtime.search.views import RuntimeSearchViewSet
from workspaces.runtime.tasks.views import TasksViewSet
from workspaces.runtime.terminals.views import TerminalsViewSet
from workspaces.runtime.transfer.views import RuntimeTransfersViewSet
from workspaces.runtime.watchers.views import WatchersViewSet


class AnyPath:
    """The rest of a path, which may be empty."""

    regex = r"[\s\S]*"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(AnyPath, "any_path")

information = InformationViewSet.as_view
tasks = TasksViewSet.as_view
files = RuntimeFilesViewSet.as_view
search = RuntimeSearchViewSet.as_view
transfers = RuntimeTransfersViewSet.as_view
terminals = TerminalsViewSet.as_view
watchers = WatchersViewSet.as_view
LEVEL: list[URLPattern | URLResolver] = [
    path("health", information({"get": "health"})),
    path("runtime", information({"get": "runtime"})),
    path("runtimes", information({"get": "runtimes"})),
    path("exec", tasks({"get": "list", "post": "run", "delete": "remove_all"})),
    path("exec/stream", tasks({"get": "follow", "post": "run_streamed"})),
    path("exec/<str:task_id>", tasks({"get": "show", "delete": "remove"})),
    path("exec/<str:task_id>/input", tasks({"post": "write_input"})),
    path("files", files({"get": "list"})),
    path("files/stream", files({"get": "stream"})),
    path("files/read", files({"get": "read"})),
    path("files/write", files({"post": "write"})),
    path("files/mkdir", files({"post": "mkdir"})),
    path("files/stat", files({"get": "stat"})),
    path("files/delete", files({"post": "remove"})),
    path("files/search", search({"get": "search"})),
    path("files/search/files", search({"get": "names"})),
    path("files/search/init", search({"get": "look", "post": "install"})),
    path("files/links", FileLinksViewSet.as_view({"post": "create"})),
    path("files/linked/<str:file_link>", LinkedFileViewSet.as_view({"get": "read", "put": "replace"})),
    path("files/transfer/download", transfers({"post": "download"})),
    path("files/transfer/upload", transfers({"post": "upload"})),
    path("terminals", terminals({"get": "list", "post": "create"})),
    path("terminals/<str:terminal_id>", terminals({"delete": "remove"})),
    path("terminals/<str:terminal_id>/scrollback", terminals({"get": "scrollback"})),
    path("watchers", watchers({"get": "list", "post": "create"})),
    path("watchers/<str:watcher_id>", watchers({"get": "show", "delete": "remove"})),
    path("proxy/<any_path:inner_path>", ProxyViewSet.as_view(METHODS)),
]
urlpatterns = [*LEVEL, *(path(f"runtimes/{target}/", include(LEVEL)) for target in ("default", "local"))]
