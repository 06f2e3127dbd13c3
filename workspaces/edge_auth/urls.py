"""Routes of the edge. It forwards nothing to `/internal`, and the views require its secret."""

from django.urls import path

from workspaces.edge_auth import views

urlpatterns = [
    path("port", views.authorize_port),
    path("wake", views.wake_port),
]
