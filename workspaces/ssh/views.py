"""`/workspace/:id/ssh` (wire contract, section 3: added routes)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.requests import validated
from common.responses import respond
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.ssh import serializers, services
from workspaces.ssh.selectors import SshAccess

CHANGED = {200: serializers.SshChangedResponse, **refused({409: "`vm_missing`"})}
KEY_CHANGED = {
    200: serializers.SshChangedResponse,
    **refused(
        {
            400: "`validation_error`: not an OpenSSH public key",
            404: "`ssh_key_not_found`",
            409: "`ssh_key_limit_exceeded`; `vm_missing`",
        }
    ),
}


class SshViewSet(ViewSet):
    """SSH access by public key; there are no passwords.

    A change is saved and applied in a running guest immediately; if that is not possible, `applied` is false and it is
    applied within minutes, or at the next start.
    """

    @extend_schema(responses=serializers.SshResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Where to connect, the host key to expect, and the authorized keys."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return respond(serializers.SshResponse, ssh=SshAccess(workspace))

    @extend_schema(request=None, responses=CHANGED)
    def enable(self, request: ApiRequest, workspace_id: str) -> Response:
        """Start the SSH server of the workspace; its keys are authorized."""
        return self._switched(request, workspace_id, enabled=True)

    @extend_schema(request=None, responses=CHANGED)
    def disable(self, request: ApiRequest, workspace_id: str) -> Response:
        """Stop the SSH server and close its sessions; the keys stay stored."""
        return self._switched(request, workspace_id, enabled=False)

    def _switched(self, request: ApiRequest, workspace_id: str, *, enabled: bool) -> Response:
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changed = services.ssh_switch(workspace=workspace, actor=request.user.label, enabled=enabled)
        return _changed_response(changed)

    @extend_schema(request=serializers.KeyRequest, responses=KEY_CHANGED)
    def key(self, request: ApiRequest, workspace_id: str) -> Response:
        """Add a public key (at most 32), or with `remove` delete one, by its line or its fingerprint.

        Idempotent. Removing a key leaves its open connections.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data, actor = validated(serializers.KeyRequest, request), request.user.label
        if data["remove"]:
            return _changed_response(services.ssh_key_remove(workspace=workspace, actor=actor, key=data["fingerprint"]))
        return _changed_response(services.ssh_key_add(workspace=workspace, actor=actor, line=data["public_key"]))


def _changed_response(workspace: Workspace) -> Response:
    """Apply the row in the guest and report it."""
    return respond(serializers.SshChangedResponse, ssh=SshAccess(workspace, services.apply_in_guest(workspace)))
