from django.urls import path

from namespaces.views import NamespaceActivityViewSet, NamespaceViewSet

ONE = "namespaces/<slug:namespace_id>"
urlpatterns = [
    path("namespaces", NamespaceViewSet.as_view({"get": "list", "post": "create"})),
    path("namespaces/ensure", NamespaceViewSet.as_view({"post": "ensure"})),
    path(ONE, NamespaceViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"})),
    path(f"{ONE}/suspend", NamespaceViewSet.as_view({"post": "suspend"})),
    path(f"{ONE}/activate", NamespaceViewSet.as_view({"post": "activate"})),
    path(f"{ONE}/stop-workspaces", NamespaceViewSet.as_view({"post": "stop_workspaces"})),
    path(f"{ONE}/activity", NamespaceActivityViewSet.as_view({"get": "list"})),
]
