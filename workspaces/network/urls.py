"""The edge's questions. It lets nobody else through to `/internal`, and they ask for its secret."""

from django.urls import path

from workspaces.network import edge

urlpatterns = [
    path("port", edge.port),
    path("wake", edge.wake),
]
