"""Response of the reinstall route."""

from __future__ import annotations

from rest_framework import serializers as s

from common.openapi import Success


class ReinstallResponse(Success):
    accepted = s.BooleanField(required=False)
    workspace_id = s.CharField()
    reinstalled = s.BooleanField()
    running = s.BooleanField()
    ip = s.CharField(allow_null=True)
    message = s.CharField()
