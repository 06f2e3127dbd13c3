"""Requests and responses of the SSH routes."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictChar
from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer
from workspaces.ssh.keys import KeyRefused, fingerprint, public_key

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
    """Of an `SshAccess`. Host and host key are null until the machine is made."""

    ssh_enabled = serializers.BooleanField(source="workspace.ssh_enabled")
    ssh_id = serializers.CharField(source="workspace.pk")
    host = serializers.CharField(allow_null=True, source="workspace.ip")
    port = serializers.IntegerField()
    user = serializers.CharField()
    host_key = BlankAsNull(source="workspace.ssh_host_key")
    keys = SshKey(many=True)


class SshConnection(ResponseSerializer):
    """Of an `SshAccess`."""

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
