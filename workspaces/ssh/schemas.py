"""Shapes of the SSH routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Success


class SshKey(s.Serializer):
    fingerprint = s.CharField()
    type = s.CharField()
    comment = s.CharField()


class SshObject(s.Serializer):
    ssh_enabled = s.BooleanField()
    ssh_id = s.CharField()
    host = s.CharField(allow_null=True)
    port = s.IntegerField()
    user = s.CharField()
    host_key = s.CharField(allow_null=True)
    keys = SshKey(many=True)


class SshResponse(Success):
    ssh = SshObject()


class SshChangedObject(SshObject):
    applied = s.BooleanField(help_text="Whether the running guest has it; otherwise it applies at the next start.")
    problem = s.CharField(allow_null=True, help_text="Why it is not applied yet.")


class SshChangedResponse(Success):
    ssh = SshChangedObject()
