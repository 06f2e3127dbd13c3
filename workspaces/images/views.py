"""`GET /workspace/images` (specification, Images)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.scopes import Scope
from common.requests import validated_query
from common.responses import respond
from workspaces.images import selectors, serializers


class CatalogViewSet(ViewSet):
    """Catalog of images, open to every credential: it belongs to no account."""

    scopes = frozenset(Scope)

    @extend_schema(parameters=[serializers.CatalogQuery], responses=serializers.CatalogResponse)
    def list(self, request: ApiRequest) -> Response:
        """List the curated images. Create also accepts any public image reference that is not listed."""
        query = validated_query(serializers.CatalogQuery, request)
        entries = selectors.shown_entries(search=query["search"], category=query["category"])
        return respond(serializers.CatalogResponse, images=entries, categories=selectors.shown_categories())
