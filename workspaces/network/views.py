"""`/workspace/:id/network` and `/workspace/:id/public-access` (wire contract, section 3: added routes)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.requests import validated
from common.responses import respond
from workspaces.network import serializers, services
from workspaces.requested import requested_workspace

MISSING = refused({409: "`vm_missing`"})


class NetworkViewSet(ViewSet):
    """What a workspace reaches, and who reaches it.

    Whatever is set, a workspace never reaches the host, the platform, another workspace or a private network.
    """

    @extend_schema(responses=serializers.NetworkResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """The network settings."""
        return respond(serializers.NetworkResponse, network=requested_workspace(request.user, workspace_id))

    @extend_schema(request=serializers.NetworkRequest, responses={200: serializers.NetworkChangedResponse, **MISSING})
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Change the fields that are given; PUT and PATCH are the same. A running machine has them at once.

        Connections that are open end with what let them through. Names that are let through resolve to public
        addresses only as far as these may be reached; each address is let through while its DNS record lives (a minute
        or two), and connections that began meanwhile go on. `applied` is false where the host could not be told yet.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes = validated(serializers.NetworkRequest, request)
        close = services.network_update(workspace=workspace, actor=request.user.label, changes=changes)
        problem = services.apply_on_host(workspace, close)
        body = serializers.NetworkChangedResponse
        return respond(body, network=workspace, applied=problem is None, problem=problem)


class PublicAccessViewSet(ViewSet):
    """Ports of a workspace at public addresses of their own: HTTP, WebSockets included.

    A request to a sleeping workspace wakes it. `Authorization` and cookies reach the program, as the address is its
    own; `X-Client-ID` and `X-Client-Secret` do not. `X-Forwarded-For`, `-Proto` and `-Host` are written by the edge.
    """

    @extend_schema(responses=serializers.PublicPortsResponse)
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """The public ports and their addresses."""
        return respond(serializers.PublicPortsResponse, workspace=requested_workspace(request.user, workspace_id))

    @extend_schema(
        request=serializers.PublishRequest,
        responses={
            200: serializers.PublicPortResponse,
            201: serializers.PublicPortResponse,
            **refused({409: "`public_port_limit_exceeded`; `vm_missing`"}),
        },
    )
    def create(self, request: ApiRequest, workspace_id: str) -> Response:
        """Give a port a public address. 200 where it has one already: its label and slug are changed.

        The workspace's first public port switches `public_access` on; further ones leave it as it is.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.PublishRequest, request)
        port, made = services.port_publish(workspace=workspace, actor=request.user.label, **data)
        return respond(serializers.PublicPortResponse, 201 if made else 200, public_port=port, workspace=workspace)

    @extend_schema(
        request=None,
        responses={
            200: serializers.WithdrawnResponse,
            **refused({404: "`public_port_not_found`", 409: "`vm_missing`"}),
        },
    )
    def destroy(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """Take a port's public address back and end the connections that are open through it."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        services.port_withdraw(workspace=workspace, actor=request.user.label, port=port)
        services.apply_on_host(workspace, [port])
        message = f"Port {port} is no longer public."
        return respond(serializers.WithdrawnResponse, message=message, workspace=workspace)
