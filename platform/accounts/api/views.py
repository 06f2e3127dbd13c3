"""`/tokens` and `/credentials` (wire contract, section 2)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts import services
from accounts.api import serializers as bodies
from accounts.authentication import ApiRequest
from accounts.permissions import ACCOUNT_ONLY
from accounts.scopes import Scope
from common.openapi import MessageResponse
from common.requests import validated
from common.responses import respond


class TokenViewSet(ViewSet):
    """Access tokens; minted with client credentials only, of any scope but billing."""

    allow_tokens = False

    @extend_schema(request=bodies.TokenRequest, responses={201: bodies.TokenResponse})
    def create(self, request: ApiRequest) -> Response:
        """Mint an access token that reaches no further than the credential that mints it."""
        data = validated(bodies.TokenRequest, request)
        minted = services.token_mint(
            actor=request.user,
            scope=Scope(data["scope"]),
            namespace=data.get("namespace"),
            workspace=data.get("workspaceId"),
            ttl=data["ttl"],
            label=data["label"],
        )
        return Response(bodies.TokenResponse(minted).data, status=201)


class CredentialViewSet(ViewSet):
    """Client credentials of the account; account scope only."""

    scopes = ACCOUNT_ONLY
    allow_tokens = False

    @extend_schema(request=bodies.CredentialRequest, responses={201: bodies.NewCredentialResponse})
    def create(self, request: ApiRequest) -> Response:
        """Issue a credential. The secret is in this response and nowhere else."""
        data = validated(bodies.CredentialRequest, request)
        made = services.credential_create(
            actor=request.user,
            name=data["name"],
            scope=Scope(data["scope"]),
            namespace=data.get("namespace"),
            workspace=data.get("workspace_id"),
        )
        return Response(bodies.NewCredentialResponse(made).data, status=201)

    @extend_schema(request=None, responses={200: bodies.NewCredentialResponse})
    def rotate(self, request: ApiRequest, credential_id: str) -> Response:
        """Replace the secret; the old one and its tokens end at once."""
        made = services.credential_rotate(actor=request.user, credential_id=credential_id)
        return Response(bodies.NewCredentialResponse(made).data)

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, credential_id: str) -> Response:
        """Delete a credential; it and its tokens end at once."""
        services.credential_delete(actor=request.user, credential_id=credential_id)
        return respond(MessageResponse, message="The credential was deleted.")
