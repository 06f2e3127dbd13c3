"""Request and response of the command route."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictChar, StrictFloat
from common.openapi import Success
from workspaces.fields import CommandField, EnvField


class ExecRequest(serializers.Serializer):
    """A command to run to its end. A string is run by `sh -c`. `stream`: its output comes as events while it runs."""

    cmd = CommandField()
    env = serializers.JSONField(required=False)
    working_dir = StrictChar(required=False, max_length=4096)
    user = StrictChar(required=False, max_length=64)
    timeout_seconds = StrictFloat(min_value=1, max_value=600, default=60)
    stdin = StrictChar(required=False, allow_blank=True, trim_whitespace=False, default="")
    stream = StrictBoolean(default=False)

    def validate_env(self, value: Any) -> dict[str, str]:
        items = [{"key": key, "value": item} for key, item in value.items()] if isinstance(value, dict) else value
        return EnvField().to_internal_value(items)


class OutputField(serializers.CharField):
    """Bytes that a command wrote, as text: those that are not UTF-8 are replaced."""

    def to_representation(self, value: Any) -> str:
        return bytes(value).decode(errors="replace")


class ExecResponse(Success):
    """Of an `ExecResult`."""

    exit_code = serializers.IntegerField()
    stdout = OutputField()
    stderr = OutputField()
    duration_ms = serializers.IntegerField()
    truncated = serializers.BooleanField()
    timed_out = serializers.BooleanField()
