"""`/workspace/:id/runtime-api-access` (wire contract, section 4b)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import Success, refused
from common.responses import respond
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.runtime import access
from workspaces.runtime.tokens import make_gateway_token

DISABLED = refused({409: "`runtime_disabled`"})


class AccessResponse(Success):
    enabled = serializers.BooleanField()
    url = serializers.CharField(help_text="The address of everything inside the running workspace.")


class GatewayTokenFields(Success):
    token = serializers.CharField(help_text="For `Authorization: Bearer` at `url`, and nowhere else.")
    expires_at = serializers.DateTimeField(help_text="An hour after it was given out.")
    url = serializers.CharField()


class EnabledResponse(GatewayTokenFields):
    enabled = serializers.BooleanField()


class RuntimeDisabledResponse(Success):
    enabled = serializers.BooleanField()
    message = serializers.CharField()


class RawTokenResponse(Success):
    token = serializers.CharField(help_text="Ends with a rotation or a disable alone.")
    ip = serializers.CharField(help_text="Where `url` answers; empty if its name leads nowhere for the platform.")
    port = serializers.IntegerField()
    url = serializers.CharField()


class RuntimeAccessViewSet(ViewSet):
    """Access to the inside of a workspace by one address and a token. Off until it is enabled."""

    @extend_schema(responses=AccessResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return whether it is enabled, and its address."""
        workspace = requested_workspace(request.user, workspace_id)
        return respond(AccessResponse, enabled=workspace.runtime_enabled, url=access.runtime_url(workspace))

    @extend_schema(request=None, responses=EnabledResponse)
    def enable(self, request: ApiRequest, workspace_id: str) -> Response:
        """Enable it and return a token. Idempotent: earlier tokens stay valid."""
        found = requested_workspace(request.user, workspace_id)
        workspace = access.runtime_enable(workspace=found, actor=request.user.label)
        return respond(EnabledResponse, enabled=True, **_gateway_token(workspace))

    @extend_schema(request=None, responses=RuntimeDisabledResponse)
    def disable(self, request: ApiRequest, workspace_id: str) -> Response:
        """Disable it. Idempotent. All of its tokens end, and within a second what they have opened."""
        found = requested_workspace(request.user, workspace_id)
        access.runtime_disable(workspace=found, actor=request.user.label)
        return respond(
            RuntimeDisabledResponse, enabled=False, message="The runtime is disabled; its tokens have ended."
        )

    @extend_schema(responses={200: GatewayTokenFields, **DISABLED})
    def token(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return a token that is valid for an hour. Changes nothing."""
        workspace = requested_workspace(request.user, workspace_id)
        access.require_enabled(workspace)
        return respond(GatewayTokenFields, **_gateway_token(workspace))

    @extend_schema(request=None, responses={200: GatewayTokenFields, **DISABLED})
    def rotate(self, request: ApiRequest, workspace_id: str) -> Response:
        """End every token that was given out, of both kinds, and return another one."""
        found = requested_workspace(request.user, workspace_id)
        workspace = access.runtime_rotate(workspace=found, actor=request.user.label)
        return respond(GatewayTokenFields, **_gateway_token(workspace))

    @extend_schema(responses={200: RawTokenResponse, **DISABLED})
    def raw_token(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return a token without an end of its own, and where the address answers."""
        workspace = requested_workspace(request.user, workspace_id)
        token = access.runtime_give_raw_token(workspace=workspace, actor=request.user.label)
        url = access.runtime_url(workspace)
        place = access.find_place(url)
        return respond(RawTokenResponse, token=token, ip=place.ip, port=place.port, url=url)


def _gateway_token(workspace: Workspace) -> dict[str, object]:
    token, expires_at = make_gateway_token(workspace)
    return {"token": token, "expires_at": expires_at, "url": access.runtime_url(workspace)}
