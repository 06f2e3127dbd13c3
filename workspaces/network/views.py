"""`/workspace/:id/network` and `/workspace/:id/public-access` (wire contract, section 3: added routes)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.requests import validated
from common.responses import respond
from workspaces.models import Workspace
from workspaces.network import serializers, services
from workspaces.requested import requested_workspace
from workspaces.serializers import NetworkObject

MISSING = refused({409: "`vm_missing`"})


class NetworkViewSet(ViewSet):
    """Egress and ingress of a workspace.

    No setting allows connections to the host, the platform, other workspaces or private networks.
    """

    @extend_schema(responses=serializers.NetworkResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the network settings."""
        return _network_response(serializers.NetworkResponse, requested_workspace(request.user, workspace_id))

    @extend_schema(request=serializers.NetworkRequest, responses={200: serializers.NetworkChangedResponse, **MISSING})
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Change the given fields; PUT and PATCH are equivalent. A running machine is changed immediately.

        Open connections that the new settings do not allow are closed. An address that an allowed name resolves to is
        allowed for the TTL of its DNS record (one or two minutes); connections opened within it stay open. Private
        addresses are never allowed. `applied` is false if the host could not be reached yet.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes = validated(serializers.NetworkRequest, request)
        close = services.network_update(workspace=workspace, actor=request.user.label, changes=changes)
        problem = services.apply_on_host(workspace, close)
        body = serializers.NetworkChangedResponse
        return _network_response(body, workspace, applied=problem is None, problem=problem)


def _network_response(
    body: type[serializers.NetworkResponse], workspace: Workspace, **fields: bool | str | None
) -> Response:
    return respond(body, network=workspace, **NetworkObject(workspace).data, **fields)


class PublicAccessViewSet(ViewSet):
    """Ports of a workspace at their own public addresses: HTTP, including WebSockets.

    A request to a sleeping workspace wakes it. `Authorization` and cookies are passed on, as each address is an
    origin of its own; `X-Client-ID` and `X-Client-Secret` are not. The edge sets `X-Forwarded-For`, `-Proto` and
    `-Host`.
    """

    @extend_schema(responses=serializers.PublicPortsResponse)
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """List the public ports and their addresses."""
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
        """Publish a port. 200 if it is already published: its label and slug are changed.

        The workspace's first public port enables `public_access`; later ones leave it unchanged.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.PublishRequest, request)
        port, made = services.port_publish(workspace=workspace, actor=request.user.label, **data)
        return respond(serializers.PublicPortResponse, 201 if made else 200, port=port, workspace=workspace)

    @extend_schema(
        request=serializers.ChangePortRequest,
        responses={
            200: serializers.PublicPortResponse,
            **refused({404: "`public_port_not_found`", 409: "`vm_missing`"}),
        },
    )
    def update(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """Change the slug or the label of a public port. Another slug gives it another address, with the same hash."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes = validated(serializers.ChangePortRequest, request)
        changed = services.port_change(workspace=workspace, port=port, changes=changes)
        return respond(serializers.PublicPortResponse, port=changed, workspace=workspace)

    @extend_schema(
        request=None,
        responses={
            200: serializers.WithdrawnResponse,
            **refused({404: "`public_port_not_found`", 409: "`vm_missing`"}),
        },
    )
    def destroy(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """Unpublish a port and close its open connections."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        services.port_withdraw(workspace=workspace, actor=request.user.label, port=port)
        services.apply_on_host(workspace, [port])
        message = f"Port {port} is no longer public."
        return respond(serializers.WithdrawnResponse, message=message, workspace=workspace)
