"""Response of the reinstall route."""

from __future__ import annotations

from rest_framework import serializers as s

from common.openapi import Success


class ReinstallResponse(Success):
    accepted = s.BooleanField(required=False)
    workspace_id = s.CharField(source="workspace.id")
    reinstalled = s.BooleanField()
    running = s.BooleanField()
    ip = s.CharField(allow_null=True, source="workspace.ip")
    message = s.CharField()
