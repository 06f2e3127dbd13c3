"""Request and response of the command route."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictChar, StrictFloat
from common.openapi import Success
from workspaces.commands.output import ENCODINGS, TEXT
from workspaces.fields import CommandField, EnvField

# The first is for a command that answers at its end. A streamed one ends with its client, so it may take longer.
ANSWER_SECONDS, STREAM_SECONDS = 600, 86400
OUTPUT_ENCODING = (
    "The encoding of both outputs: text, in which bytes that are not UTF-8 are replaced, or `base64`, byte for byte."
)
LOSSY = (
    "Whether bytes that are not UTF-8 were replaced by U+FFFD. Ask with `encoding: base64` for the bytes themselves."
)


class EncodingField(serializers.ChoiceField):
    """Encoding of bytes in JSON: as text, or in base64."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(ENCODINGS, **{"default": TEXT, **kwargs})


class ExecRequest(serializers.Serializer[Any]):
    """A command to run to its end. A string is run by `sh -c`. `stream`: its output comes as events while it runs."""

    cmd = CommandField()
    env = serializers.JSONField(required=False)
    working_dir = StrictChar(
        required=False, max_length=4096, help_text="Default: the image's working directory, else the user's home."
    )
    user = StrictChar(
        required=False,
        max_length=64,
        help_text="A name or number, with `:group` or without. Default: the image's user, else root.",
    )
    timeout_seconds = StrictFloat(
        min_value=1,
        max_value=STREAM_SECONDS,
        default=60,
        help_text=f"At most {ANSWER_SECONDS}; with `stream` at most {STREAM_SECONDS}.",
    )
    stdin = StrictChar(required=False, allow_blank=True, trim_whitespace=False, default="")
    stdin_encoding = EncodingField(help_text="The encoding of `stdin`; with `base64` it may be any bytes.")
    stdin_key = serializers.RegexField(
        r"\A[A-Za-z0-9_-]{16,64}\Z",
        required=False,
        help_text="With `stream`: more of the input comes by requests under this key, which the caller chooses. The "
        "input ends when they end it.",
    )
    stream = StrictBoolean(default=False)
    encoding = EncodingField(help_text=OUTPUT_ENCODING)

    def validate_env(self, value: Any) -> dict[str, str]:
        items = [{"key": key, "value": item} for key, item in value.items()] if isinstance(value, dict) else value
        return EnvField().to_internal_value(items)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check fields that depend on each other, and decode `stdin` to its bytes."""
        if "stdin_key" in attrs and not attrs["stream"]:
            raise serializers.ValidationError({"stdin_key": ["Only a command with `stream` takes input in parts."]})
        if attrs["timeout_seconds"] > ANSWER_SECONDS and not attrs["stream"]:
            problem = f"Ensure this value is less than or equal to {ANSWER_SECONDS}."
            raise serializers.ValidationError({"timeout_seconds": [problem]})
        given = attrs["stdin"]
        try:
            stdin = given.encode() if attrs["stdin_encoding"] == TEXT else b64decode(given, validate=True)
        except ValueError as exc:
            raise serializers.ValidationError({"stdin": ["This is not base64."]}) from exc
        return attrs | {"stdin": stdin}


class InputQuery(serializers.Serializer[Any]):
    offset = serializers.IntegerField(
        min_value=0, max_value=1 << 53, help_text="Bytes before this part, from 0. Bytes that came before are left out."
    )
    eof = serializers.BooleanField(default=False, help_text="The input ends with this part, which may be empty.")


class InputResponse(Success):
    bytes_written = serializers.IntegerField(help_text="The size of the whole part.")


class ExecResponse(Success):
    """Result of a command that ran to its end (`EncodedResult`)."""

    exit_code = serializers.IntegerField(source="result.exit_code")
    stdout = serializers.CharField()
    stderr = serializers.CharField()
    encoding = serializers.ChoiceField(ENCODINGS, help_text="The encoding of `stdout` and `stderr`, as requested.")
    lossy = serializers.BooleanField(help_text=LOSSY)
    duration_ms = serializers.IntegerField(source="result.duration_ms")
    truncated = serializers.BooleanField(source="result.truncated")
    timed_out = serializers.BooleanField(source="result.timed_out")
