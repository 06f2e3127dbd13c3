"""`GET /workspace/images` (specification, Images)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.scopes import Scope
from common.requests import validated_query
from common.responses import ok
from workspaces.images import bodies, selectors, serializers


class CatalogViewSet(ViewSet):
    """Whoever is authenticated may browse: nothing in the catalog is anybody's."""

    scopes = frozenset(Scope)

    @extend_schema(parameters=[serializers.CatalogQuery], responses=serializers.CatalogResponse)
    def list(self, request: ApiRequest) -> Response:
        """The curated images. No whitelist: create accepts any public image reference."""
        query = validated_query(serializers.CatalogQuery, request)
        entries = selectors.shown_entries(search=query["search"], category=query["category"])
        return ok(images=[bodies.entry_body(entry) for entry in entries], categories=bodies.categories_body())
