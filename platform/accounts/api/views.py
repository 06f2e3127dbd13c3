"""`/tokens` and `/credentials` (wire contract, section 2)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts import selectors, services
from accounts.api import serializers as bodies
from accounts.authentication import ApiRequest
from accounts.permissions import ACCOUNT_ONLY
from accounts.scopes import Scope
from common.openapi import MessageResponse
from common.pagination import PagePagination, PageQuery
from common.requests import validated
from common.responses import respond


class TokenViewSet(ViewSet):
    """Access tokens, issued to client credentials only, with any scope except billing."""

    allow_tokens = False

    @extend_schema(request=bodies.TokenRequest, responses={201: bodies.TokenResponse})
    def create(self, request: ApiRequest) -> Response:
        """Issue an access token whose scope is within the scope of the credential."""
        data = validated(bodies.TokenRequest, request)
        issued = services.token_mint(
            actor=request.user,
            scope=Scope(data["scope"]),
            namespace=data.get("namespace"),
            workspace=data.get("workspaceId"),
            ttl=data["ttl"],
            label=data["label"],
        )
        return Response(bodies.TokenResponse(issued).data, status=201)


class CredentialViewSet(ViewSet):
    """Client credentials of the account; requires account scope."""

    scopes = ACCOUNT_ONLY
    allow_tokens = False
    lookup_url_kwarg = "credential_id"
    lookup_value_converter = "slug"

    @extend_schema(parameters=[PageQuery], responses=bodies.CredentialListResponse)
    def list(self, request: ApiRequest) -> Response:
        """The account's credentials, newest first, without their secrets."""
        paginator = PagePagination()
        rows = paginator.paginate_queryset(selectors.listed_credentials(request.user), request, view=self)
        return respond(bodies.CredentialListResponse, credentials=rows, **paginator.page_fields())

    @extend_schema(request=bodies.CredentialRequest, responses={201: bodies.NewCredentialResponse})
    def create(self, request: ApiRequest) -> Response:
        """Create a credential of the given `scope`. The secret is returned in this response only."""
        data = validated(bodies.CredentialRequest, request)
        new = services.credential_create(
            actor=request.user,
            name=data["name"],
            scope=Scope(data["scope"]),
            namespace=data.get("namespace"),
            workspace=data.get("workspace_id"),
        )
        return Response(bodies.NewCredentialResponse(new).data, status=201)

    @extend_schema(request=None, responses={200: bodies.NewCredentialResponse})
    @action(detail=True, methods=["post"])
    def rotate(self, request: ApiRequest, credential_id: str) -> Response:
        """Replace the secret; the old one and its tokens are revoked immediately."""
        new = services.credential_rotate(actor=request.user, credential_id=credential_id)
        return Response(bodies.NewCredentialResponse(new).data)

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, credential_id: str) -> Response:
        """Delete a credential; it and its tokens are revoked immediately."""
        services.credential_delete(actor=request.user, credential_id=credential_id)
        return respond(MessageResponse, message="The credential was deleted.")
