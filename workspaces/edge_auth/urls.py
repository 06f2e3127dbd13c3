"""The edge's questions. It lets nobody else through to `/internal`, and they ask for its secret."""

from django.urls import path

from workspaces.edge_auth import views

urlpatterns = [
    path("port", views.authorize_port),
    path("wake", views.wake_port),
]
