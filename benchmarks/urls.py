"""The platform's routes and `/empty`."""

from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from common.responses import ok


class EmptyViewSet(ViewSet):
    """Authenticates; an empty response."""

    def list(self, request: Request) -> Response:
        return ok()


urlpatterns = [path("empty", EmptyViewSet.as_view({"get": "list"})), path("", include("config.urls"))]
