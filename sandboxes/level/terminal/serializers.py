"""Bodies of the command route of a sandbox."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictInteger
from common.openapi import Success
from sandboxes.level.terminal.services import DEFAULT_MS, MAX_COMMAND, MAX_MS
from workspaces.commands.output import ENCODINGS
from workspaces.commands.serializers import LOSSY, OUTPUT_ENCODING, EncodingField
from workspaces.data_plane.fields import ArgumentField, EnvironmentField, PathField


class SandboxCommandRequest(serializers.Serializer[Any]):
    command = ArgumentField(max_bytes=MAX_COMMAND, allow_empty=False, help_text="Run by `sh -c`.")
    cwd = PathField(required=False, help_text="Default: the image's working directory, else the user's home, or `/`.")
    env = EnvironmentField(default=dict)
    timeout = StrictInteger(min_value=1, max_value=MAX_MS, default=DEFAULT_MS, help_text="Milliseconds.")
    encoding = EncodingField(help_text=OUTPUT_ENCODING)


class SandboxCommandResponse(Success):
    """The response body of an `EncodedResult`."""

    output = serializers.CharField(source="stdout")
    error = serializers.CharField(source="stderr")
    encoding = serializers.ChoiceField(ENCODINGS, help_text="The encoding of `output` and `error`, as requested.")
    lossy = serializers.BooleanField(help_text=LOSSY)
    exitCode = serializers.IntegerField(
        source="result.exit_code", help_text="124 after the timeout, 128 + N if signal N ended the command."
    )
    duration = serializers.IntegerField(source="result.duration_ms", help_text="Milliseconds.")
    truncated = serializers.BooleanField(
        source="result.truncated", help_text="Whether `output` or `error` had more than 1 MiB and was cut."
    )
    timedOut = serializers.BooleanField(source="result.timed_out")
