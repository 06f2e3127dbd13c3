"""Routes under `/workspace`. An identifier is an id or a slug; anything else is no route."""

from django.urls import path, register_converter

from workspaces.api.views import WorkspaceViewSet
from workspaces.files.views import FilesViewSet, overlay_files
from workspaces.logs.views import LogsViewSet


class Identifier:
    regex = r"[A-Za-z0-9_-]{1,128}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(Identifier, "ws")

workspace = WorkspaceViewSet.as_view
urlpatterns = [
    path("workspace", workspace({"post": "create", "get": "list"})),
    path("workspace/quota", workspace({"get": "quota"})),
    path("workspace/<ws:workspace_id>", workspace({"get": "retrieve", "put": "update", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/details", workspace({"get": "details"})),
    path("workspace/<ws:workspace_id>/provisioning/retry", workspace({"post": "retry"})),
    path("workspace/<ws:workspace_id>/start", workspace({"post": "start"})),
    path("workspace/<ws:workspace_id>/stop", workspace({"post": "stop"})),
    path("workspace/<ws:workspace_id>/exec", workspace({"post": "execute"})),
    path("workspace/<ws:workspace_id>/overlay", FilesViewSet.as_view({"get": "list"})),
    path("workspace/<ws:workspace_id>/overlay/files", overlay_files),
    path("workspace/<ws:workspace_id>/logs", LogsViewSet.as_view({"get": "list"})),
]
