from django.urls import path

from hosts.move_views import MoveViewSet
from hosts.orphan_views import OrphanViewSet
from hosts.views import HostTokenViewSet, HostViewSet, JoinViewSet

ONE = "staff/hosts/<slug:host_id>"
urlpatterns = [
    path("staff/hosts", HostViewSet.as_view({"get": "list"})),
    path("staff/hosts/tokens", HostTokenViewSet.as_view({"post": "create"})),
    path(ONE, HostViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"})),
    path(f"{ONE}/drain", HostViewSet.as_view({"post": "drain"})),
    path(f"{ONE}/activate", HostViewSet.as_view({"post": "activate"})),
    path(f"{ONE}/maintenance", HostViewSet.as_view({"post": "maintenance"})),
    path(f"{ONE}/give-up", HostViewSet.as_view({"post": "give_up"})),
    path("staff/workspaces/<slug:workspace_id>/move", MoveViewSet.as_view({"post": "create", "delete": "destroy"})),
    path(f"{ONE}/orphans", OrphanViewSet.as_view({"get": "list"})),
    path(f"{ONE}/orphans/<slug:workspace_id>", OrphanViewSet.as_view({"delete": "destroy"})),
    path(f"{ONE}/orphans/<slug:workspace_id>/put-back", OrphanViewSet.as_view({"post": "put_back"})),
    path("join/hosts", JoinViewSet.as_view({"post": "create"})),
    path("join/ca", JoinViewSet.as_view({"get": "authority"})),
]
