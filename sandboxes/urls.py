"""Routes of sandboxes: the account level under `/sandbox`, and the sandbox level at each sandbox's address."""

from django.urls import include, path, register_converter

# Registers itself; with the routes, as a process without them needs no description of them.
from sandboxes.level import openapi  # noqa: F401
from sandboxes.snapshot_views import SandboxSnapshotsViewSet
from sandboxes.views import SandboxViewSet


class SandboxId:
    """The id in lower case: as a part of a host name it may come in any case."""

    regex = r"[A-Za-z0-9_-]{1,64}"

    def to_python(self, value: str) -> str:
        return value.lower()

    def to_url(self, value: str) -> str:
        return value


register_converter(SandboxId, "sbx")

sandbox = SandboxViewSet.as_view
kept = SandboxSnapshotsViewSet.as_view
urlpatterns = [
    # First, as there are most requests of it.
    path("s/<sbx:sandbox_id>/", include("sandboxes.level.urls")),
    path("sandbox", sandbox({"post": "create", "get": "list"})),
    path("sandbox/<sbx:sandbox_id>", sandbox({"get": "retrieve", "delete": "destroy"})),
    path("sandbox/<sbx:sandbox_id>/start", sandbox({"post": "start"})),
    path("sandbox/<sbx:sandbox_id>/stop", sandbox({"post": "stop"})),
    path("sandbox/<sbx:sandbox_id>/restart", sandbox({"post": "restart"})),
    path("sandbox/<sbx:sandbox_id>/snapshot", kept({"post": "create"})),
    path("sandbox/<sbx:sandbox_id>/restore", kept({"post": "restore"})),
    path("sandbox/<sbx:sandbox_id>/fork", kept({"post": "fork"})),
    path("sandbox/<sbx:sandbox_id>/regenerate-token", sandbox({"post": "regenerate_token"})),
    path("sandbox/<sbx:sandbox_id>/metrics", sandbox({"get": "metrics"})),
]
