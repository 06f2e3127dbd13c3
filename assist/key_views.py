"""`/api-keys` (wire contract, section 2)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from accounts.scopes import Scope
from assist import selectors, services
from assist import serializers as bodies
from common.openapi import MessageResponse, refused
from common.pagination import PagePagination, PageQuery
from common.request_origin import request_origin
from common.requests import validated
from common.responses import respond
from namespaces.models import Namespace
from namespaces.selectors import for_create


class ApiKeyViewSet(ViewSet):
    """Keys of the code assistance API; account or namespace scope. A namespace's credential has its keys alone."""

    scopes = NAMESPACE_SCOPES
    allow_tokens = False

    @extend_schema(parameters=[PageQuery], responses=bodies.ApiKeyListResponse)
    def list(self, request: ApiRequest) -> Response:
        """List the keys that the credential reaches, newest first, without their secrets."""
        paginator = PagePagination()
        rows = paginator.paginate_queryset(selectors.visible_keys(request.user), request, view=self)
        return respond(bodies.ApiKeyListResponse, api_keys=rows, **paginator.page_fields())

    @extend_schema(
        request=bodies.ApiKeyRequest,
        responses={201: bodies.NewApiKeyResponse, **refused({409: "`conflict`: the account has 100 keys"})},
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a key. `key` and `webhook_secret` are in this response only.

        `namespace` pays for the calls, and the key ends with it. Without `namespace`, the account's default namespace
        at the time of each call pays.
        """
        data = validated(bodies.ApiKeyRequest, request)
        new = services.api_key_create(
            account=request.user.account,
            name=data["name"],
            namespace=_namespace(request, data.get("namespace")),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        return respond(
            bodies.NewApiKeyResponse, 201, api_key=new.api_key, key=new.key, webhook_secret=new.webhook_secret
        )

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, api_key_id: str) -> Response:
        """Delete a key: the next request with it is refused. Calls that have begun are finished."""
        found = selectors.get_key(request.user, api_key_id)
        services.api_key_delete(api_key=found, actor=request.user.label, origin=request_origin(request._request))
        return respond(MessageResponse, message="The API key was deleted.")


def _namespace(request: ApiRequest, slug: str | None) -> Namespace | None:
    """Return the namespace of the request or of the credential; None means the default namespace.

    Raise what `for_create` raises.
    """
    if slug is None and request.user.scope is not Scope.NAMESPACE:
        return None
    return for_create(request.user, slug)
