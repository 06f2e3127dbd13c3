"""Bodies of the command route of a sandbox."""

from __future__ import annotations

from rest_framework import serializers

from common.fields import StrictInteger
from common.openapi import Success
from sandboxes.level.fields import ArgumentField, EnvironmentField, PathField
from sandboxes.level.terminal.services import DEFAULT_MS, MAX_COMMAND, MAX_MS
from workspaces.commands.serializers import OutputField


class SandboxCommandRequest(serializers.Serializer):
    command = ArgumentField(max_bytes=MAX_COMMAND, allow_empty=False, help_text="Run by `sh -c`.")
    cwd = PathField(required=False, help_text="Default: the user's home directory, or `/`.")
    env = EnvironmentField(default=dict)
    timeout = StrictInteger(min_value=1, max_value=MAX_MS, default=DEFAULT_MS, help_text="Milliseconds.")


class SandboxCommandResponse(Success):
    """Of an `ExecResult`."""

    output = OutputField(source="stdout")
    error = OutputField(source="stderr")
    exitCode = serializers.IntegerField(
        source="exit_code", help_text="124 after the timeout, 128 + N where signal N ended the command."
    )
    duration = serializers.IntegerField(source="duration_ms", help_text="Milliseconds.")
    truncated = serializers.BooleanField(help_text="Whether there was more output than 1 MiB of a kind.")
    timedOut = serializers.BooleanField(source="timed_out")
