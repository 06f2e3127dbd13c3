"""`/workspace/:id/domain` (wire contract, section 3: added routes)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from accounts.authentication import ApiRequest
from common.openapi import refused
from domains.models import TargetKind
from domains.serializers import ConnectPortDomainRequest
from domains.services import Target
from domains.views import CONNECT_TEXT, CONNECTED, DomainViewSet
from workspaces.errors import PublicPortNotFound
from workspaces.models import PublicPort
from workspaces.requested import requested_workspace

PORT_TEXT = """

`port` is a public port of the workspace: the settings of its own address (`public_access`, `ingress`) hold for the
domain, too, and a request to a sleeping workspace wakes it. If the port is unpublished, the domain answers 404 until
the port is public again."""


class WorkspaceDomainViewSet(DomainViewSet):
    """A domain of the owner's that leads to a public port of a workspace. It outlives the machine."""

    request_serializer = ConnectPortDomainRequest

    def target_of(self, request: ApiRequest, **path: str) -> Target:
        workspace = requested_workspace(request.user, path["workspace_id"])
        return Target(TargetKind.WORKSPACE, workspace.pk, workspace.account)

    def check_target(self, target: Target) -> None:
        if target.port is None or not PublicPort.objects.filter(workspace_id=target.id, port=target.port).exists():
            raise PublicPortNotFound

    @extend_schema(
        request=ConnectPortDomainRequest,
        responses={**CONNECTED, **refused({404: "`not_found`; `public_port_not_found`"})},
        description=CONNECT_TEXT + PORT_TEXT,
    )
    def create(self, request: ApiRequest, **path: str) -> Response:
        return super().create(request, **path)
