from django.urls import path

from hosts.views import HostTokenViewSet, HostViewSet, JoinViewSet

urlpatterns = [
    path("staff/hosts/tokens", HostTokenViewSet.as_view({"post": "create"})),
    path("staff/hosts/<slug:host_id>", HostViewSet.as_view({"delete": "destroy"})),
    path("join/hosts", JoinViewSet.as_view({"post": "create"})),
    path("join/ca", JoinViewSet.as_view({"get": "authority"})),
]
