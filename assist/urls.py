"""`/v1/blurs` and `/api-keys`."""

from django.urls import path, re_path

from assist.key_views import ApiKeyViewSet
from assist.views import BlursViewSet, UnknownPathViewSet

urlpatterns = [
    path("v1/blurs/generate", BlursViewSet.as_view({"post": "generate"})),
    path("v1/blurs/debug", BlursViewSet.as_view({"post": "debug"})),
    path("v1/blurs/optimize", BlursViewSet.as_view({"post": "optimize"})),
    re_path(r"^v1/blurs(?:/.*)?$", UnknownPathViewSet.as_view({"get": "unknown"})),
    path("api-keys", ApiKeyViewSet.as_view({"get": "list", "post": "create"})),
    path("api-keys/<slug:api_key_id>", ApiKeyViewSet.as_view({"delete": "destroy"})),
]
