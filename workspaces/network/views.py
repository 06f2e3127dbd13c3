"""`/workspace/:id/network` and `/workspace/:id/public-access` (wire contract, section 3: added routes)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import MessageResponse, refused
from common.requests import validated
from common.responses import respond
from workspaces.models import Workspace
from workspaces.network import links, serializers, services
from workspaces.requested import requested_workspace
from workspaces.serializers import NetworkObject
from workspaces.wait_response import stored_response

NETWORK_CHANGED = {200: serializers.NetworkChangedResponse, 202: serializers.NetworkChangedResponse}
MISSING = refused({409: "`vm_missing`"})
NO_PORT = "`public_port_not_found`"


class NetworkViewSet(ViewSet):
    """Egress and ingress of a workspace.

    No setting allows connections to the host, the platform, other workspaces or private networks.
    """

    @extend_schema(responses=serializers.NetworkResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the network settings."""
        return _network_response(serializers.NetworkResponse, requested_workspace(request.user, workspace_id))

    @extend_schema(request=serializers.NetworkRequest, responses={**NETWORK_CHANGED, **MISSING})
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Change the given fields; PUT and PATCH are equivalent. A running machine is changed immediately.

        Open connections that the new settings do not allow are closed. An address that an allowed name resolves to is
        allowed for the TTL of its DNS record (one or two minutes); connections opened within it stay open. Private
        addresses are never allowed. `applied` is false if the host could not be reached yet; 202 while it is away.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes = validated(serializers.NetworkRequest, request)
        close = services.network_update(workspace=workspace, actor=request.user.label, changes=changes)
        problem = services.apply_on_host(workspace, close)
        body = serializers.NetworkChangedResponse
        return stored_response(workspace, _network_response(body, workspace, applied=problem is None, problem=problem))


def _network_response(
    body: type[serializers.NetworkResponse], workspace: Workspace, **fields: bool | str | None
) -> Response:
    return respond(body, network=workspace, **NetworkObject(workspace).data, **fields)


class PublicAccessViewSet(ViewSet):
    """Ports of a workspace at their own public addresses: HTTP, including WebSockets.

    A request to a sleeping workspace wakes it. `Authorization` and cookies are passed on, as each address is an
    origin of its own; `X-Client-ID` and `X-Client-Secret` are not. The edge sets `X-Forwarded-For`, `-Proto` and
    `-Host`.

    A port whose `access` is `private` answers 401 to visitors without a link, at a custom domain, too.
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
        """Publish a port. 200 if it is already published: its label, slug and access are changed.

        The workspace's first public port enables `public_access`; later ones leave it unchanged.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.PublishRequest, request)
        written = services.port_publish(workspace=workspace, actor=request.user.label, **data)
        return _port_response(workspace, written)

    @extend_schema(
        request=serializers.ChangePortRequest,
        responses={
            200: serializers.PublicPortResponse,
            **refused({404: NO_PORT, 409: "`vm_missing`"}),
        },
    )
    def update(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """Change slug, label or access of a public port. Another slug gives it another address, with the same hash.

        When it becomes private its open connections are closed; when it becomes public its links end.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes = validated(serializers.ChangePortRequest, request)
        written = services.port_change(workspace=workspace, actor=request.user.label, port=port, changes=changes)
        return _port_response(workspace, written)

    @extend_schema(
        request=None,
        responses={
            200: serializers.WithdrawnResponse,
            **refused({404: NO_PORT, 409: "`vm_missing`"}),
        },
    )
    def destroy(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """Unpublish a port and close its open connections. Its links end."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        services.port_withdraw(workspace=workspace, actor=request.user.label, port=port)
        services.apply_on_host(workspace, [port])
        message = f"Port {port} is no longer public."
        return respond(serializers.WithdrawnResponse, message=message, workspace=workspace)


def _port_response(workspace: Workspace, written: services.WrittenPort) -> Response:
    if written.closes:
        services.apply_on_host(workspace, [written.port.port])
    status = 201 if written.is_new else 200
    return respond(serializers.PublicPortResponse, status, port=written.port, workspace=workspace)


class PortLinkViewSet(ViewSet):
    """Links to a private port. A link opens its port alone, at each of its names, until it ends.

    A browser opens the link's `url`: the edge answers with a cookie for this host alone, which pages cannot read, and
    leads to the same address without the secret. A program sends the secret, the value of `__link` in the `url`, as
    `Authorization: Bearer`. WebSockets open with both. The secret and the cookie are removed from requests before the
    port gets them; other cookies and other credentials are passed on.
    """

    @extend_schema(responses={200: serializers.PortLinksResponse, **refused({404: NO_PORT})})
    def list(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """List the links that open the port, without their secrets."""
        found = services.published_port(requested_workspace(request.user, workspace_id), port)
        return respond(serializers.PortLinksResponse, links=links.living_links(found))

    @extend_schema(
        request=serializers.LinkRequest,
        responses={
            201: serializers.PortLinkResponse,
            **refused({404: NO_PORT, 409: "`port_not_private`; `port_link_limit_exceeded`; `vm_missing`"}),
        },
    )
    def create(self, request: ApiRequest, workspace_id: str, port: int) -> Response:
        """Make a link to a private port. Its `url` is shown once."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.LinkRequest, request)
        made = links.link_create(workspace=workspace, actor=request.user.label, port=port, **data)
        return respond(serializers.PortLinkResponse, 201, link=made)

    @extend_schema(
        request=None,
        responses={200: MessageResponse, **refused({404: f"{NO_PORT}; `port_link_not_found`"})},
    )
    def destroy(self, request: ApiRequest, workspace_id: str, port: int, link_id: str) -> Response:
        """Revoke a link. The port's open connections are closed; visitors who have another link come back."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        links.link_revoke(workspace=workspace, actor=request.user.label, port=port, link_id=link_id)
        services.apply_on_host(workspace, [port])
        return respond(MessageResponse, message="The link opens the port no longer.")
