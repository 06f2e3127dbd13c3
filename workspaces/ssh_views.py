"""`/workspace/:id/ssh` (wire contract, section 3: added routes)."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.fields import StrictBoolean, StrictChar
from common.openapi import Success, refused
from common.requests import validated
from common.responses import respond
from common.serializers import BlankAsNull, ResponseSerializer
from workspaces import ssh
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.ssh import KeyRefused, SshAccess, fingerprint, public_key
from workspaces.wait_response import stored_response

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class KeyRequest(serializers.Serializer[Any]):
    """A key to authorize, or with `remove` to revoke; its fingerprint is enough to revoke it."""

    public_key = StrictChar(max_length=8192, help_text="One OpenSSH public key line.")
    remove = StrictBoolean(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        text = attrs["public_key"].strip()
        if attrs["remove"] and FINGERPRINT.fullmatch(text):
            return {**attrs, "fingerprint": text}
        try:
            line = public_key(text)
        except KeyRefused as exc:
            raise serializers.ValidationError({"public_key": str(exc)}) from exc
        return {**attrs, "public_key": line, "fingerprint": fingerprint(line)}


class SshKey(ResponseSerializer):
    fingerprint = serializers.CharField()
    type = serializers.CharField()
    comment = serializers.CharField()


class SshObject(ResponseSerializer):
    """SSH access of a workspace. Host and host key are null until the machine is made."""

    ssh_enabled = serializers.BooleanField(source="workspace.ssh_enabled")
    ssh_id = serializers.CharField(source="workspace.pk")
    host = serializers.CharField(allow_null=True, source="workspace.ip")
    port = serializers.IntegerField()
    user = serializers.CharField()
    host_key = BlankAsNull(source="workspace.ssh_host_key")
    keys = SshKey(many=True)


class SshConnection(ResponseSerializer):
    """Connection by SSH."""

    user = serializers.CharField()
    host = serializers.CharField(source="workspace.ip")
    port = serializers.IntegerField()
    command = serializers.CharField(help_text="For a shell on the host of the workspace, or in its network.")


class SshEnvelope(Success):
    ssh_enabled = serializers.BooleanField(source="ssh.workspace.ssh_enabled")
    connection = SshConnection(
        allow_null=True, source="ssh.connection", help_text="Null while SSH is off and until the machine is made."
    )


class SshResponse(SshEnvelope):
    ssh = SshObject()


class SshChangedObject(SshObject):
    applied = serializers.BooleanField(
        help_text="Whether it is in effect in the running guest; otherwise it is within minutes, or at the next start."
    )
    problem = serializers.CharField(allow_null=True, help_text="Why it is not in effect yet.")


class SshChangedResponse(SshEnvelope):
    ssh = SshChangedObject()
    accepted = serializers.BooleanField(required=False, help_text="With 202: it waits for the host.")


CHANGED = {200: SshChangedResponse, 202: SshChangedResponse, **refused({409: "`vm_missing`"})}
KEY_CHANGED = {
    200: SshChangedResponse,
    202: SshChangedResponse,
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
    applied within minutes, or at the next start. While the host is away, the response is 202.
    """

    @extend_schema(responses=SshResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the address to connect to, the host key to expect, and the authorized keys."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return respond(SshResponse, ssh=SshAccess(workspace))

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
        changed = ssh.ssh_switch(workspace=workspace, actor=request.user.label, enabled=enabled)
        return _changed_response(changed)

    @extend_schema(request=KeyRequest, responses=KEY_CHANGED)
    def key(self, request: ApiRequest, workspace_id: str) -> Response:
        """Add a public key (at most 32), or with `remove` delete one, by its line or its fingerprint.

        Idempotent. Removing a key leaves its open connections.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data, actor = validated(KeyRequest, request), request.user.label
        if data["remove"]:
            return _changed_response(ssh.ssh_key_remove(workspace=workspace, actor=actor, key=data["fingerprint"]))
        return _changed_response(ssh.ssh_key_add(workspace=workspace, actor=actor, line=data["public_key"]))


def _changed_response(workspace: Workspace) -> Response:
    """Apply the row in the guest and report it."""
    response = respond(SshChangedResponse, ssh=SshAccess(workspace, ssh.apply_in_guest(workspace)))
    return stored_response(workspace, response)
